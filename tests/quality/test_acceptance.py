"""Acceptance does not depend on the order in which results arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simia.jobs.coordinator import InOrder
from simia.quality.acceptance import Acceptance, Decision, Outcome


class Ordered:
    """An acceptance that takes outcomes in any order, as the coordinator feeds one."""

    def __init__(self, n: int) -> None:
        self.acceptance, self.order = Acceptance(n), InOrder[tuple[int, Outcome]]()

    def add(self, ord_: int, outcome: Outcome) -> list[tuple[int, Decision]]:
        return [(place, self.acceptance.decide(each)) for place, each in self.order.add(ord_, (ord_, outcome))]


OUTCOMES = st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=40)


@given(OUTCOMES, st.integers(1, 12), st.randoms())
def test_any_order_of_arrival_accepts_the_same(outcomes: list[str | None], n: int, random: object) -> None:
    def decide(order: list[int]) -> list[tuple[int, str]]:
        acceptance = Ordered(n)
        decisions = [d for i in order for d in acceptance.add(i, Outcome(outcomes[i], None if outcomes[i] else "bad"))]
        assert [ord_ for ord_, _ in decisions] == list(range(len(outcomes)))
        return [(ord_, d.verdict) for ord_, d in decisions]

    straight = list(range(len(outcomes)))
    mixed = straight[:]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert decide(straight) == decide(mixed)
    accepted = [outcomes[i] for i, verdict in decide(straight) if verdict == "accepted"]
    assert len(accepted) == len(set(accepted)) == min(n, len({o for o in outcomes if o}))


def test_nothing_is_decided_past_a_gap() -> None:
    acceptance = Ordered(2)
    assert acceptance.add(1, Outcome("x")) == []
    assert len(acceptance.order.waiting) == 1
    assert [d.verdict for _, d in acceptance.add(0, Outcome(None, "leak"))] == ["rejected", "accepted"]
