"""What a method tells the coordinator: its items, how they are made and decided, and when a job is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import Field

from simia.config import Config
from simia.jobs.ledger import Item

Verdict = Literal["accepted", "rejected", "surplus"]
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - outcome
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a job ended."""

    kind: str
    """`complete`, `interrupted`, `budget`, `attempts`, `yield`, `endpoint`, `batch` or `aborted`."""
    detail: str = ""
    """One line for people."""


class StopSettings(Config):
    """When a run gives up before it is complete."""

    attempts: int | None = Field(default=None, ge=1)
    """Items at most; None: ten times n, and fifty."""
    min_yield: float = Field(default=0.02, ge=0, le=1)
    """Stop when less than this share of the latest `window` items was accepted: these seeds yield no more."""
    window: int = Field(default=100, ge=10)
    """How many of the latest items the yield is taken over."""
    item_tries: int = Field(default=3, ge=1)
    """How often an item is put to the endpoint again after it failed (each time with all retries)."""
    outage: int = Field(default=8, ge=1)
    """Stop after so many failures of the endpoint in a row with no reply between them."""


class Work(Protocol[R, O]):
    """What a method makes: items, a result of type R for each, and the outcome of type O that the result is decided by.

    An item may need several replies (samples named after it) and leave files in the run's folder: `produce` makes them, `restore` looks
    whether they are still there. `wants` and `plan` may depend on what was decided, so items can be made from the results of earlier ones.
    """

    def wants(self, ord_: int, in_flight: int) -> bool:
        """Whether the item of this place is to be planned now. Asked again after every decision; `in_flight`: items not decided yet."""

    def plan(self, ord_: int) -> Item:
        """The item of a place: the same one in every session."""

    def restore(self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> O | None:
        """The outcome of an item of an earlier session; None: it is to be produced (again)."""

    async def produce(self, item: Item) -> R:
        """Make the result. Raises `LLMFault` and `BudgetReached` of the engine; any other exception ends the job."""

    def conclude(self, item: Item, result: R) -> O:
        """Write the verdict into the item, store the result in the ledger."""

    def decide(self, item: Item, outcome: O | None) -> Verdict:
        """Called for each item in plan order. An accepted item is written to the ledger; `outcome` is None where none was produced."""

    def find_stop(self) -> Stop | None:
        """A reason to plan nothing more, of the method's own."""

    def explain_end(self) -> Stop:
        """Where the job stands when nothing is left to do; of kind `complete` where everything that was asked for is there."""


@dataclass(slots=True)
class InOrder(Generic[T]):
    """Takes numbered values in any order and gives them back by number, without gaps."""

    next: int = 0
    waiting: dict[int, T] = field(default_factory=dict)

    def add(self, number: int, value: T) -> Iterator[T]:
        self.waiting[number] = value
        while self.next in self.waiting:
            self.next += 1
            yield self.waiting.pop(self.next - 1)
