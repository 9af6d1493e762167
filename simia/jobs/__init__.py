"""The durable work ledger: runs that lose nothing when they die, and can be resumed, listed and checked again."""

from simia.jobs.ledger import FAILED, HEAD, OPEN, PASSED, REJECTED, Item, Ledger, read_seeds
from simia.jobs.reply_store import Store
from simia.jobs.run import Run, find_run, folders, refuse_partial

__all__ = [
    "FAILED",
    "HEAD",
    "OPEN",
    "PASSED",
    "REJECTED",
    "Item",
    "Ledger",
    "Run",
    "Store",
    "find_run",
    "folders",
    "read_seeds",
    "refuse_partial",
]
