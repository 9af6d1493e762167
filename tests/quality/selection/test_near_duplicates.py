"""Near-duplicates: what a signature sees, what the index finds, and that both are the same everywhere."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from itertools import pairwise

import pytest

from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import AmplifyConfig
from simia.errors import UserError
from simia.quality.selection.near_duplicates import (
    LANES,
    SIZE,
    NearDuplicateIndex,
    choose_band_size,
    compute_signature,
    count_equal_lanes,
    estimate_similarity,
)
from simia.trajectory import Message, ToolCall, Trajectory

VOCABULARY = [f"{a}{b}{c}n" for a in "bdfgklmprst" for b in "aeiou" for c in "bdfgklmprst"]


def story(words: list[str], *, order: str = "ORD-1", call_id: str = "c1", result: str = "{}") -> Trajectory:
    half = len(words) // 2
    return Trajectory(
        messages=[
            Message(role="user", content=" ".join(words[:half])),
            Message(role="assistant", calls=[ToolCall(id=call_id, name="get_order", arguments={"order": order})]),
            Message(role="tool", call_id=call_id, content=result),
            Message(role="assistant", content=" ".join(words[half:])),
        ]
    )


def text(number: int, length: int = 300) -> list[str]:
    return random.Random(number).choices(VOCABULARY, k=length)


def changed(words: list[str], count: int, number: int = 0) -> list[str]:
    rng, found = random.Random(f"changed {number}"), list(words)
    for place in rng.sample(range(len(words)), count):
        found[place] = f"new{rng.randrange(10**6)}"
    return found


@cache
def seeds() -> list[Trajectory]:
    config = AmplifyConfig()
    return load_seed_packs(config.seeds, config.checks).order


def pairs(t: Trajectory) -> set[tuple[str, str]]:
    said = [word for m in t.messages if m.role != "tool" for word in m.text.split()]
    return set(pairwise(said))


def test_results_and_ids_of_calls_are_nothing() -> None:
    one = story(text(1))
    assert compute_signature(one) == compute_signature(
        story(text(1), call_id="call_99", result='{"status": "shipped"}')
    )
    assert len(compute_signature(one)) == SIZE


def test_case_and_marks_are_nothing() -> None:
    one, other = story(["Where", "is", "it?", "Shipped."]), story(["where", "is", "it", "shipped"])
    assert compute_signature(one) == compute_signature(other)


@pytest.mark.parametrize("other", [story(text(1), order="ORD-2"), story(changed(text(1), 12))])
def test_arguments_and_words_count(other: Trajectory) -> None:
    assert compute_signature(other) != compute_signature(story(text(1)))


def test_the_order_of_arguments_is_nothing_and_their_absence_is_no_error() -> None:
    one, other, odd = (story(text(1)) for _ in range(3))
    one.messages[1].calls[0].arguments = {"a": 1, "b": 2}
    other.messages[1].calls[0].arguments = {"b": 2, "a": 1}
    assert compute_signature(one) == compute_signature(other)
    odd.messages[1].calls[0].arguments = {"a": 10**30}
    assert compute_signature(odd) != compute_signature(one)
    odd.messages[1].calls[0] = ToolCall(id="c", name="f", raw='{"a')
    assert len(compute_signature(odd)) == SIZE


def test_an_empty_conversation_has_a_signature_of_its_own() -> None:
    nothing = compute_signature(Trajectory())
    assert nothing == compute_signature(Trajectory(messages=[Message(role="user", content="...")]))
    assert estimate_similarity(nothing, compute_signature(story(["one", "two"]))) < 0.5


def test_other_scripts_count() -> None:
    one, other = story(["заказ", "где"]), story(["возврат", "когда"])
    assert compute_signature(one) != compute_signature(other)


def test_a_signature_is_the_same_in_every_process() -> None:
    program = (
        "from simia.quality.selection.near_duplicates import compute_signature; from simia.trajectory import Message, Trajectory;"
        "print(compute_signature(Trajectory(messages=[Message(role='user', content='Where is my order of the tiles?')])).hex())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": number}, capture_output=True, text=True, check=True
        ).stdout
        for number in ("0", "1", "2")
    }
    here = compute_signature(
        Trajectory(messages=[Message(role="user", content="Where is my order of the tiles?")])
    ).hex()
    assert said == {here + "\n"}


def test_the_estimate_is_the_share_of_pairs_in_common() -> None:
    """Were the hashes of pairs not mixed well, the estimate would be off; one sigma is 0.045 at most."""
    errors = []
    for number in range(60):
        words = text(number, 400)
        one, other = story(words), story(changed(words, 10 + 2 * number, number))
        own, others = pairs(one), pairs(other)
        errors.append(
            estimate_similarity(compute_signature(one), compute_signature(other))
            - len(own & others) / len(own | others)
        )
    assert abs(sum(errors) / len(errors)) < 0.02
    assert max(map(abs, errors)) < 0.16


def test_lanes_are_counted_one_by_one() -> None:
    rng = random.Random(5)
    for _ in range(50):
        one = [rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF]) for _ in range(LANES)]
        other = [rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF]) for _ in range(LANES)]
        numbers = [
            int.from_bytes(b"".join(lane.to_bytes(2, "little") for lane in lanes), "little") for lanes in (one, other)
        ]
        assert count_equal_lanes(*numbers) == sum(a == b for a, b in zip(one, other, strict=True))


def test_near_copies_are_found_and_other_stories_are_not() -> None:
    index = NearDuplicateIndex()
    originals = [text(number) for number in range(100)]
    for number, words in enumerate(originals):
        index.add(f"i{number}", compute_signature(story(words)))
    found = [index.find(compute_signature(story(changed(words, 6, number)))) for number, words in enumerate(originals)]
    assert sum(name == f"i{number}" for number, name in enumerate(found)) >= 98
    assert all(name in (None, f"i{number}") for number, name in enumerate(found))
    assert [index.find(compute_signature(story(text(number)))) for number in range(1000, 1100)] == [None] * 100


def test_a_story_rewritten_in_half_its_words_is_another_one() -> None:
    index = NearDuplicateIndex()
    index.add("seed", compute_signature(story(text(1))))
    assert index.find(compute_signature(story(changed(text(1), 100)))) is None
    assert index.find(compute_signature(story(changed(text(1), 4)))) == "seed"


def test_our_seeds_are_not_near_to_one_another() -> None:
    index = NearDuplicateIndex()
    for seed in seeds():
        own = compute_signature(seed)
        assert index.find(own) is None, seed.task_id
        index.add(seed.task_id or "", own)
    assert [index.find(compute_signature(seed)) for seed in seeds()] == [seed.task_id for seed in seeds()]


def test_the_nearest_is_named_and_of_equals_the_first() -> None:
    words = text(3)
    index = NearDuplicateIndex(0.5)
    index.add("far", compute_signature(story(changed(words, 40))))
    index.add("near", compute_signature(story(changed(words, 5))))
    index.add("same again", compute_signature(story(changed(words, 5))))
    assert index.find(compute_signature(story(words))) == "near"
    assert len(index) == 3


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.75, 0.9, 1.0])
def test_bands_leave_what_is_at_the_threshold_a_candidate(threshold: float) -> None:
    rows = choose_band_size(threshold)
    assert 1 - (1 - threshold**rows) ** (LANES // rows) >= 0.9
    index = NearDuplicateIndex(threshold)
    index.add("one", compute_signature(story(text(1))))
    assert index.find(compute_signature(story(text(1)))) == "one"


def test_a_higher_threshold_finds_less() -> None:
    one, other = compute_signature(story(text(1))), compute_signature(story(changed(text(1), 30)))
    strict, loose = NearDuplicateIndex(0.95), NearDuplicateIndex(0.5)
    for index in (strict, loose):
        index.add("one", one)
    assert (strict.find(other), loose.find(other)) == (None, "one")


def test_chains_are_followed_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simia.quality.selection.near_duplicates.BUCKETS", 2)
    index = NearDuplicateIndex()
    for number in range(200):
        index.add(str(number), compute_signature(story(text(number, 40))))
    assert [index.find(compute_signature(story(text(number, 40)))) for number in range(200)] == [
        str(n) for n in range(200)
    ]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="threshold"):
        NearDuplicateIndex(1.5)
    with pytest.raises(ValueError, match="256 bytes"):
        NearDuplicateIndex().add("x", b"short")
