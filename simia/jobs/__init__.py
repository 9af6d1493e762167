"""The durable work ledger: runs that lose nothing when they die, and can be resumed, listed and checked again."""

from simia.jobs.ledger import FAILED, HEAD, OPEN, PASSED, REJECTED, Item, Ledger, seeds_of
from simia.jobs.reply_store import Store
from simia.jobs.run import Run, folders, locate, refuse_partial

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
    "folders",
    "locate",
    "refuse_partial",
    "seeds_of",
]
