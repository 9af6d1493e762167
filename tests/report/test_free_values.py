"""Values that request, user, policy or schema fix are no free choice, and cannot be over-represented."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.formats.reply.reply_parser import parse_reply
from simia.pack import Pack
from simia.report.diversity import find_grown_values, measure_diversity
from simia.report.free_values import iterate_free_values, names_value, read_planned_values
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

HOLD = ToolSpec(
    name="hold",
    parameters={
        "type": "object",
        "properties": {
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["day"]},
            "notify": {"type": "string", "default": "mail"},
        },
    },
)
LOOP = Path(__file__).parents[2] / "eval" / "loop"


def held(said: str, *, policy: str | None = None, later: str = "", **arguments: Any) -> Trajectory:
    messages = [
        Message(role="user", content=said),
        Message(role="assistant", calls=[ToolCall(id="a", name="hold", arguments=arguments)]),
        Message(role="tool", call_id="a", content="{}"),
        Message(role="user", content=later),
    ]
    return Trajectory(system=policy, tools=[HOLD], messages=messages)


def free(t: Trajectory, **planned: Any) -> list[Any]:
    return [value for _, _, value in iterate_free_values(t, planned)]


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (held("Keep it a while.", days=7), [7]),
        (held("Keep it 7 days.", days=7), []),
        (held("Keep it for seven days.", days=7), []),
        (held("Keep it for a dozen days.", days=12), []),
        (held("Keep it 17 days or 7.5.", days=7), [7]),
        (held("Keep it.", later="7 days, I mean", days=7), [7]),
        (held("Keep it a month.", policy="Held for 7 days at most: who wants longer gets 7.", days=7), []),
        (held("Keep it a month.", policy="Held for 14 days at most.", days=7), [7]),
        (held("Keep it.", unit="day", notify="mail"), []),
        (held("Keep it.", notify="sms"), ["sms"]),
        (held("Tell me by a text message.", notify="text_message"), []),
        (held("Keep it.", days={"not": "plain"}), []),
    ],
)
def test_what_is_a_free_choice(t: Trajectory, expected: list[Any]) -> None:
    assert free(t) == expected


def test_a_value_that_the_request_gave_is_not_counted() -> None:
    t = held("Keep it a while.", days=7)
    assert free(t, days=7) == []
    assert free(t, days=5) == free(t, other=7) == [7]
    assert free(held("Keep it.", days=True), days=1) == [True]
    assert read_planned_values(orjson.dumps({"plan": {"values": {"days": 7}}})) == {"days": 7}
    assert read_planned_values(b'{"seed": "a"}') == {}


def test_a_text_names_no_truth_value_and_an_empty_value_is_no_choice() -> None:
    assert not names_value("true", True)
    assert names_value("", "")
    assert names_value("it costs 20 euros", 20.0)


def test_a_value_is_over_represented_among_free_choices_only() -> None:
    """12 requests for a month, which the policy answers with 7, leave 20 choices, of which 6 are 7."""
    policy = "Hold for 7 days at most."
    seeds = [held("Keep it.", days=days) for days in (3, 4, 5, 6, 7)]
    prescribed = [held("Keep it a month.", policy=policy, days=7) for _ in range(12)]
    chosen = [held("Keep it.", days=days) for days in [7] * 6 + [2] * 5 + [3] * 5 + [4] * 4]
    assert find_grown_values(measure_diversity([*prescribed, *chosen], []), measure_diversity(seeds, [])) == []
    unruly = [held("Keep it a month.", days=7) for _ in range(12)]
    ((argument, value, share, was),) = find_grown_values(
        measure_diversity([*unruly, *chosen], []), measure_diversity(seeds, [])
    )
    assert (argument, value, round(share, 3), was) == ("hold.days", 7, 0.562, 0.2)


def test_the_sevens_of_the_loop_are_no_free_choice() -> None:
    """docs/loop.md: of 35 holds 16 are for 7 days; request or policy fixes each of them."""
    seeds = Pack.load(LOOP / "pack").seeds
    days: Counter[int] = Counter()
    longer = 0
    found = measure_diversity([], seeds)
    for line in (LOOP / "recording.jsonl").read_bytes().splitlines():
        parsed = parse_reply(orjson.loads(line)["reply"]["text"], None, form="auto")
        t = Trajectory(system=seeds[0].system, tools=seeds[0].tools, messages=parsed.messages)
        said = " ".join(message.text.lower() for message in t.messages if message.role == "user")
        for _, _, call in t.calls():
            if call.name == "hold_parcel":
                days[(call.arguments or {})["days"]] += 1
                longer += (
                    (call.arguments or {})["days"] == 7
                    and "week" not in said.replace("weeks", "")
                    and "seven" not in said
                )
        found.add(t)
    assert (days.total(), days[7], longer) == (35, 16, 12)
    assert ("hold_parcel", "days") not in found.values, "every number is the user's or the policy's"
    assert find_grown_values(found, measure_diversity(seeds, seeds)) == []
