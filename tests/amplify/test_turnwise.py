"""A conversation made turn by turn: what each side is shown, what it is held to, and how it ends.

Recorded conversations of a small model: a changed prompt is a miss (record anew, see recordings/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.turnwise import TurnwiseSettings, converse, files
from simia.errors import Code
from simia.formats.reply.parse import Parsed
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.quality.check import Checks, check
from simia.quality.grounding import infer
from simia.tool import compile_schema
from simia.trajectory import Trajectory

RECORDINGS = Path(__file__).parent.parent / "recordings"
# Seeds as they were when the recordings were made, where they have changed since.
PACKS = {name: RECORDINGS / "seeds" / name for name in ("customer_service", "office")}
SEEDS = {name: Pack.load(path).seeds for name, path in PACKS.items()}
BY_ID = {seed.task_id: seed for seeds in SEEDS.values() for seed in seeds}
SHORT, LONG = BY_ID["cs-001"], BY_ID["cs-008"]
HINT = "Values: order_id ORD-55555, email mei.tanaka@example.com."
CALL = {"name": "get_order", "arguments": {"order_id": "ORD-55555", "email": "mei.tanaka@example.com"}}
OPENING = {"text": "Where is ORD-55555? I'm mei.tanaka@example.com."}
FOUND = {"order_id": "ORD-55555", "status": "shipped"}
FREE = TurnwiseSettings(shape="free")


class Script:
    """Answers in order, and keeps what was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Request, str]] = []

    async def __call__(self, request: Request, draw: str) -> Reply:
        self.asked.append((request, draw))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Reply):
            return answer
        return Reply(text=answer if isinstance(answer, str) else json.dumps(answer), finish="stop")

    def schema(self, at: int) -> dict[str, Any]:
        form = self.asked[at][0].response_format
        assert form is not None
        schema: dict[str, Any] = form["json_schema"]["schema"]
        return schema

    def prompt(self, at: int) -> str:
        return json.dumps(self.asked[at][0].messages, ensure_ascii=False)


def sampling(messages: list[dict[str, Any]], form: dict[str, Any] | None, most: int) -> Request:
    return Request(messages=messages, response_format=form, max_tokens=most)


async def played(
    script: Script, seed: Trajectory = SHORT, settings: TurnwiseSettings | None = None, tools: Sequence[str] = ()
) -> Parsed:
    return await converse(seed, HINT, settings or TurnwiseSettings(), sampling, script, tools=tools)


def findings(parsed: Parsed, seed: Trajectory) -> list[str]:
    made = Trajectory(pack=seed.pack, system=seed.system, tools=seed.tools, messages=parsed.messages)
    return [str(issue) for issue in parsed.issues or check(made, Checks(), seed=seed)]


async def test_a_short_conversation_follows_its_seed() -> None:
    script = Script(OPENING, {"calls": [CALL]}, FOUND, {"text": "It was shipped."})
    parsed = await played(script)
    assert [(m.role, m.text) for m in parsed.messages] == [
        ("user", OPENING["text"]),
        ("assistant", ""),
        ("tool", '{"order_id":"ORD-55555","status":"shipped"}'),
        ("assistant", "It was shipped."),
    ]
    assert parsed.messages[2].call_id == parsed.messages[1].calls[0].id
    assert findings(parsed, SHORT) == []
    assert [draw for _, draw in script.asked] == ["t0", "t1", "t2", "t3"]
    assert [request.max_tokens for request, _ in script.asked] == [200, 400, 800, 400]
    again = await played(Script(*script.answers))
    assert again == parsed


async def test_each_side_sees_its_own_part_only() -> None:
    script = Script(OPENING, {"calls": [CALL]}, FOUND, {"text": "It was shipped."})
    await played(script)
    user, assistant, tool, last = (script.prompt(at) for at in range(4))
    assert "get_order" not in user
    assert "final_sale" not in user
    assert HINT in user
    assert "Pebbleford" in assistant
    assert HINT not in assistant
    assert "get_order" in assistant
    assert "Pebbleford" not in tool
    assert OPENING["text"] not in tool
    assert "final_sale" in tool  # the exemplar's result
    assert "^ORD-[0-9]{5}$" in tool  # the schema
    for request, _ in script.asked:
        roles = [message["role"] for message in request.messages[1:]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    first, second = script.asked[1][0].messages, script.asked[3][0].messages
    assert second[: len(first)] == first  # a prompt only grows at its end
    assert json.loads(last)[-1]["content"].startswith("Result of get_order: ")


@pytest.mark.parametrize("hint", ["", "The user is in a hurry."])
async def test_without_values_the_user_is_given_the_wish_of_the_seed(hint: str) -> None:
    script = Script(OPENING, {"calls": [CALL]}, FOUND, {"text": "It was shipped."})
    await converse(SHORT, hint, TurnwiseSettings(), sampling, script)
    last = script.asked[0][0].messages[-1]["content"]
    assert last.endswith(f"a wish like this one: {SHORT.messages[0].text}")
    assert hint in last


async def test_a_longer_conversation_shows_every_side_what_came_before() -> None:
    cancel = {"name": "cancel_order", "arguments": {"order_id": "ORD-55555", "reason": "mistake"}}
    script = Script(
        *(OPENING, {"calls": [CALL]}, {"error": "no such order"}, {"text": "Can't find it."}),
        *({"text": "Try again."}, {"calls": [CALL]}, FOUND, {"text": "Shall I cancel it?"}),
        *({"text": "Yes."}, {"calls": [cancel]}, {"order_id": "ORD-55555"}, {"text": "Done."}),
    )
    parsed = await played(script, LONG)
    assert [m.role[0] for m in parsed.messages] == list("uatauatauata")
    assert "Can't find it." in script.prompt(4)
    assert "no such order" in script.prompt(6)
    assert '\\"status\\":\\"shipped\\"' in script.prompt(10)
    assert parsed.messages[2].error is Code.TOOL_ERROR
    assert findings(parsed, LONG) == []


async def test_turns_are_held_to_the_seed() -> None:
    script = Script(OPENING, {"calls": [CALL]}, FOUND, {"text": "It was shipped."})
    await played(script)
    call = compile_schema(script.schema(1))
    assert call.valid({"calls": [CALL]})
    assert not call.valid({"text": "Hello."})
    assert not call.valid({"calls": [CALL, CALL]})
    assert not call.valid({"calls": [CALL | {"name": "cancel_order"}]})
    assert not call.valid({"calls": [CALL | {"arguments": {"order_id": "55555", "email": "mei.tanaka@example.com"}}]})
    assert not compile_schema(script.schema(3)).valid({"calls": [CALL]})


async def test_a_result_repeats_what_the_call_says() -> None:
    script = Script(OPENING, {"calls": [CALL]}, FOUND, {"text": "It was shipped."})
    await played(script)
    schema = script.schema(2)
    assert schema["properties"]["order_id"] == {"const": "ORD-55555"}
    assert schema["required"] == list(json.loads(SHORT.messages[2].text))


async def test_left_free_the_sides_decide() -> None:
    script = Script(OPENING, {"text": "Which one?"}, {"text": "That one."}, {"calls": [CALL]}, FOUND, {"text": "Sent."})
    parsed = await played(script, settings=FREE)
    assert [m.role[0] for m in parsed.messages] == list("uauata")
    first = compile_schema(script.schema(1))
    assert first.valid({"text": "Hm."})
    assert first.valid({"calls": [CALL, CALL]})
    assert compile_schema(script.schema(2)).valid({"done": True})
    done = Script(OPENING, {"text": "Anything else?"}, {"done": True})
    assert [m.role[0] for m in (await played(done, settings=FREE)).messages] == list("ua")


@pytest.mark.parametrize("most", range(4, 14))
async def test_a_conversation_ends_in_words_within_its_limit(most: int) -> None:
    class Endless(Script):
        async def __call__(self, request: Request, draw: str) -> Reply:
            self.asked.append((request, draw))
            valid = compile_schema(self.schema(-1)).valid
            offers = [OPENING] if draw == "t0" else [{"calls": [CALL] * n} for n in (3, 2, 1)]
            fits = [offer for offer in [*offers, {"text": "And now?"}] if valid(offer)]
            return Reply(text=json.dumps(fits[0] if fits else FOUND), finish="stop")

    settings = TurnwiseSettings(shape="free", max_turns=most, max_rounds=2)
    parsed = await played(Endless(), settings=settings)
    assert parsed.issues == []
    assert len(parsed.messages) <= most
    assert parsed.messages[-1].role == "assistant"
    assert not parsed.messages[-1].calls
    rounds = "".join("c" if m.calls else m.role[0] for m in parsed.messages if m.role != "tool")
    assert "ccc" not in rounds


async def test_tools_of_a_scenario_are_offered_too() -> None:
    script = Script(OPENING, {"text": "Hm."}, {"done": True})
    await played(script, settings=FREE, tools=["get_refund"])
    assert "get_refund" in script.prompt(1)
    assert "cancel_order" not in script.prompt(1)
    everything = Script(OPENING, {"text": "Hm."}, {"done": True})
    await played(everything, settings=TurnwiseSettings(shape="free", offer="all"))
    assert all(tool.name in everything.prompt(1) for tool in SHORT.tools)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Reply(text='{"calls": [', finish="length"), Code.TRUNCATED),
        (Reply(finish="content_filter"), Code.CONTENT_FILTER),
        (Reply(text=" \n", finish="stop"), Code.EMPTY_REPLY),
        (Reply(text="{]", finish="stop"), Code.UNPARSABLE),
        (Reply(text='{"say": 1}', finish="stop"), Code.UNPARSABLE),
        (Reply(text='{"calls": ["x"]}', finish="stop"), Code.UNPARSABLE),
    ],
)
async def test_a_bad_reply_ends_it_with_a_reason(answer: Reply, code: Code) -> None:
    parsed = await played(Script(OPENING, answer))
    assert parsed.messages == []
    assert [issue.code for issue in parsed.issues] == [code]


async def test_what_is_said_in_plain_words_or_slightly_broken_is_read_and_named() -> None:
    fenced = f'```json\n{{"calls": [{json.dumps(CALL)},]}}\n```'
    parsed = await played(Script("Where is ORD-55555? I'm mei.tanaka@example.com.", fenced, FOUND, "It was shipped."))
    assert findings(parsed, SHORT) == []
    assert "plain_words" in parsed.repairs
    assert len(parsed.repairs) > 1
    plain_result = await played(Script(OPENING, {"calls": [CALL]}, "it was shipped"))
    assert [issue.code for issue in plain_result.issues] == [Code.UNPARSABLE]


def test_the_prompt_files_are_named_with_their_hashes() -> None:
    assert files(TurnwiseSettings()).keys() == {"turnwise/user.md", "turnwise/assistant.j2", "turnwise/tool.j2"}


EXPECTED = json.loads((RECORDINGS / "turnwise.verdicts.json").read_text())


def test_enough_conversations_are_recorded() -> None:
    assert len(EXPECTED["conversations"]) >= 6


@pytest.mark.parametrize("name", EXPECTED["conversations"])
async def test_recorded_conversations_keep_their_verdicts(name: str) -> None:
    backend = ReplayBackend(ReplaySettings(path=RECORDINGS / "turnwise.jsonl"))
    told, seed = EXPECTED["conversations"][name], BY_ID[name]

    def as_recorded(messages: list[dict[str, Any]], form: dict[str, Any] | None, most: int) -> Request:
        fields = {**EXPECTED["sampling"], "seed": told["seed"]}
        return Request(messages=messages, response_format=form, max_tokens=most, **fields)

    async def ask(request: Request, draw: str) -> Reply:
        return await backend.complete(request, draw=f"{name}.{draw}")

    settings = TurnwiseSettings(shape=EXPECTED["shape"])
    shots = [BY_ID[shot] for shot in told["shots"]]
    parsed = await converse(seed, told["hint"], settings, as_recorded, ask, shots=shots)
    made = Trajectory(pack=seed.pack, system=seed.system, tools=seed.tools, messages=parsed.messages)
    seeds = next(seeds for seeds in SEEDS.values() if seed in seeds)
    issues = parsed.issues or check(made, Checks(), ids=infer(seed.tools, seeds), seed=seed)
    assert (issues[0].code if issues else "passed") == told["verdict"], [str(issue) for issue in issues]
    assert len(parsed.messages) == told["messages"]
