"""Acceptance does not depend on the order in which results arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simia.quality.acceptance import Acceptance, Outcome

OUTCOMES = st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=40)


@given(OUTCOMES, st.integers(1, 12), st.randoms())
def test_any_order_of_arrival_accepts_the_same(outcomes: list[str | None], n: int, random: object) -> None:
    def decide(order: list[int]) -> list[tuple[int, str]]:
        acceptance = Acceptance(n)
        decisions = [d for i in order for d in acceptance.add(i, Outcome(outcomes[i], None if outcomes[i] else "bad"))]
        assert [d.ord for d in decisions] == list(range(len(outcomes)))
        return [(d.ord, d.verdict) for d in decisions]

    straight = list(range(len(outcomes)))
    mixed = straight[:]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert decide(straight) == decide(mixed)
    accepted = [outcomes[i] for i, verdict in decide(straight) if verdict == "accepted"]
    assert len(accepted) == len(set(accepted)) == min(n, len({o for o in outcomes if o}))


def test_nothing_is_decided_past_a_gap() -> None:
    acceptance = Acceptance(2)
    assert acceptance.add(1, Outcome("x")) == []
    assert acceptance.waiting == 1
    assert [d.verdict for d in acceptance.add(0, Outcome(None, "leak"))] == ["rejected", "accepted"]
