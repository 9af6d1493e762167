"""The durable work ledger: runs that lose nothing when they die, and can be resumed, listed and checked again."""

from simia.runs.ledger import FAILED, HEAD, OPEN, PASSED, REJECTED, Item, Ledger, seeds_of
from simia.runs.run import Run, folders, locate, refuse_partial
from simia.runs.store import Store

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
