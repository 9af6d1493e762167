"""Prompts: complete schemas, policy, form and exemplar; static first, so that a prefix cache serves what is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.amplification.fresh_values import render_fresh_values
from simia.amplification.prompt import Form, PromptRenderer, PromptSettings, render_exemplar
from simia.errors import UserError
from simia.formats.reply.reply_parser import parse_reply
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory

PACKS = ("customer_service", "office")


def flat(messages: list[dict[str, str]]) -> str:
    return "".join(f"<{m['role']}>{m['content']}" for m in messages)


def common(one: str, other: str) -> str:
    """The longest beginning that two texts share."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:same]


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("form", ["json", "tagged"])
def test_two_prompts_of_a_pack_share_everything_up_to_the_exemplar(name: str, form: str) -> None:
    pack = Pack.load(name)
    first, second = (
        PromptRenderer(PromptSettings(), form).render(seed, hint=render_fresh_values(seed, i))
        for i, seed in enumerate(pack.seeds[:2])
    )  # type: ignore[arg-type]
    shared = common(flat(first.messages), flat(second.messages))
    assert shared.startswith(flat(first.messages[:1])), "the whole system turn is static"
    own = flat(first.messages).removeprefix(shared)
    assert len(own) < len(render_exemplar(pack.seeds[0], form)) + 600  # type: ignore[arg-type]
    for tool in pack.tools:
        assert orjson.dumps(tool.parameters).decode() in shared, "full parameter schemas"
    assert pack.policy is not None
    assert pack.policy in shared


def test_further_shots_are_static_and_stand_before_the_exemplar() -> None:
    pack = Pack.load("office")
    settings = PromptSettings(shots=3)
    prompts = [PromptRenderer(settings, "json").render(seed, fixed=pack.seeds[:3]) for seed in pack.seeds[5:7]]
    assert [m["role"] for m in prompts[0].messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert prompts[0].messages[:-1] == prompts[1].messages[:-1]


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("form", ["json", "tagged"])
def test_every_exemplar_reads_back_as_its_seed(name: str, form: str) -> None:
    """What we show is what we ask for: our parser must read it without a repair."""
    for seed in Pack.load(name).seeds:
        parsed = parse_reply(render_exemplar(seed, form))  # type: ignore[arg-type]
        assert parsed.issues == []
        assert parsed.repairs == []
        assert [m.role for m in parsed.messages] == [m.role for m in seed.messages]
        for read, meant in zip(parsed.messages, seed.messages, strict=True):
            assert [(c.name, c.arguments) for c in read.calls] == [(c.name, c.arguments) for c in meant.calls]
            assert (read.reasoning or None) == (meant.reasoning or None)
            if meant.role == "tool":
                assert orjson.loads(read.text) == orjson.loads(meant.text)
            else:
                assert read.text == meant.text


def test_a_users_prompt_of_the_same_name_overrides_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simia.amplification import prompt

    theirs = tmp_path / "prompts" / "amplify"
    theirs.mkdir(parents=True)
    (theirs / "request.j2").write_text("MINE {{ exemplar }}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path))
    prompt.load_template.cache_clear()
    prompt.read_prompt.cache_clear()
    try:
        rendered = PromptRenderer(PromptSettings(), "json").render(Pack.load("office").seeds[0])
        assert rendered.messages[-1]["content"].startswith("MINE ")
        ours = Path(prompt.__file__).parents[2] / "prompts/amplify/request.j2"
        assert rendered.files["amplify/request.j2"] != __import__("hashlib").sha256(ours.read_bytes()).hexdigest()[:16]
    finally:
        prompt.load_template.cache_clear()
        prompt.read_prompt.cache_clear()


def test_a_missing_prompt_is_one_clear_line() -> None:
    with pytest.raises(UserError, match=r"no prompt named 'amplify/nope\.j2'"):
        PromptRenderer(PromptSettings(system="amplify/nope.j2"), "json")


def test_a_planned_request_names_the_plans_length_and_no_tools_of_the_seed() -> None:
    seed = Pack.load("customer_service").seeds[8]
    renderer = PromptRenderer(PromptSettings(), "json")
    plain = renderer.render(seed, hint="Values: x 1.").messages[-1]["content"]
    assert plain.endswith(
        "(11 messages or so) with other people, other values and another wish. It may well need: get_order, change_address.\nValues: x 1."
    )
    planned = renderer.render(seed, hint="Goal 1: done.", planned=6).messages[-1]["content"]
    assert "about 6 messages" in planned
    assert "may well need" not in planned
    assert planned.endswith("It follows this plan:\nGoal 1: done.")


@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("result", ['{"reference":12345678901234567890123}', '{"id":1,"id":2}', '{"x":"a\\":","y":[]}'])
def test_an_exemplar_shows_results_without_loss(result: str, form: Any) -> None:
    call = ToolCall(id="call_1", name="f", arguments={})
    messages = [
        Message(role="user", content="hi"),
        Message(role="assistant", calls=[call]),
        Message(role="tool", content=result, call_id="call_1", name="f"),
        Message(role="assistant", content="Done."),
    ]
    assert parse_reply(render_exemplar(Trajectory(messages=messages), form)).messages == messages


@pytest.mark.parametrize("form", ["json", "tagged"])
def test_an_exemplar_shows_results_in_the_order_of_their_calls(form: Form) -> None:
    calls = [ToolCall(id=id_, name="weather", arguments={"city": city}) for id_, city in (("a", "Oslo"), ("b", "Rome"))]
    results = [Message(role="tool", content=text, call_id=id_) for text, id_ in (("-4", "a"), ("31", "b"))]
    start = [Message(role="user", content="hi"), Message(role="assistant", calls=calls)]
    in_order = render_exemplar(Trajectory(messages=[*start, *results]), form)
    assert render_exemplar(Trajectory(messages=[*start, *reversed(results)]), form) == in_order
