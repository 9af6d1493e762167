"""Between messages and ids: which chat templates are taken, how a policy's turn is read, and what one turn does to a row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.tool import ToolSpec
from simia.trainers.tokens import ChatText, TokenRow, cut_after_end
from simia.trajectory import Message
from tests.trainers import tiny_model

END = 3
SWITCH = ToolSpec(
    name="switch",
    description="A lamp",
    parameters={
        "type": "object",
        "properties": {
            "lamp": {"type": "string"},
            "on": {"type": "boolean"},
            "level": {"type": ["integer", "null"]},
            "where": {"type": "object"},
        },
    },
)
USER = Message(role="user", content="hello")
THINKING = tiny_model.CHAT_TEMPLATE.replace(
    "assistant\\n' -}}{%- endif -%}", "assistant\\n<think>\\n' -}}{%- endif -%}"
)


class Letters:
    """A tokenizer whose tokens are characters, with a chat template in Jinja, as a checkpoint brings one."""

    eos_token_id = END

    def __init__(self, template: str = tiny_model.CHAT_TEMPLATE) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["refuse"] = refuse
        self.template = environment.from_string(template)

    def apply_chat_template(self, rows: list[dict[str, Any]], *, add_generation_prompt: bool, **values: Any) -> str:
        return self.template.render(messages=rows, add_generation_prompt=add_generation_prompt, **values)

    def decode(self, ids: list[int], skip_special_tokens: bool = False, **_: Any) -> str:
        return "".join("" if skip_special_tokens and i == END else "<|im_end|>" if i == END else chr(i) for i in ids)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) for c in text.replace("<|im_end|>", chr(END))]}


def refuse(why: str) -> None:
    raise jinja2.TemplateError(why)


def ids_of(text: str) -> list[int]:
    return [*map(ord, text), END]


TURN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}<|im_end|>{% endfor %}"
TELLS = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %} by <tool_call> "


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (TURN, "does not show the policy its tools (switch)"),
        ("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + TURN, "asks for calls in another form"),
        (
            "{% if messages[0].role == 'system' %}{{ refuse('no system text') }}{% endif %}",
            "opening messages (no system text)",
        ),
        (TELLS + TURN.replace("c.function.name", "''"), "leaves out calls of the assistant"),
        (TELLS + TURN.replace("{{ m.content }}", ""), "leaves out turns of the assistant"),
        (
            TELLS + "{% if messages[3] is defined %}{{ refuse('one result only') }}{% endif %}" + TURN,
            "a user message or tool results (one result only)",
        ),
        (
            TELLS + TURN.replace("<|im_end|>", "</s>"),
            "does not end a turn with a token at which generation stops (<|im_end|>)",
        ),
    ],
)
def test_a_template_by_which_calls_would_be_lost_is_refused_at_the_start(template: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        ChatText(Letters(template)).opening("You help.", [USER], [SWITCH])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_templates_of_the_usual_shape_are_taken_and_without_tools_any_is() -> None:
    for template in (tiny_model.CHAT_TEMPLATE, THINKING, TELLS + TURN):
        assert ChatText(Letters(template)).opening("You help.", [USER], [SWITCH])
    assert ChatText(Letters(TURN)).opening("You talk.", [USER], [])


def test_what_a_policy_only_thinks_of_is_not_done() -> None:
    drafted = '<tool_call>\n{"name": "switch", "arguments": {"lamp": "hall", "on": true}}\n</tool_call>'
    message = ChatText(Letters(THINKING)).read(ids_of(f"perhaps {drafted}? No.\n</think>\n\nWhich lamp?"), 1)
    assert (message.content, message.calls) == ("Which lamp?", [])
    assert message.reasoning is not None
    assert drafted in message.reasoning
    for template, text in ((THINKING, f"perhaps {drafted}"), (tiny_model.CHAT_TEMPLATE, f"<think>\nperhaps {drafted}")):
        never_closed = ChatText(Letters(template)).read(ids_of(text), 1)
        assert (never_closed.content, never_closed.calls) == (None, [])
        assert never_closed.reasoning == f"perhaps {drafted}"
    done = ChatText(Letters(THINKING)).read(ids_of(f"yes\n</think>\n\n{drafted}"), 1)
    assert [call.name for call in done.calls] == ["switch"]


def test_arguments_in_tags_are_typed_by_the_schema() -> None:
    text = (
        "<tool_call>\n<function=switch>\n<parameter=lamp>\n12\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n"
        '<parameter=level>\nNone\n</parameter>\n<parameter=where>\n{"floor": 2}\n</parameter>\n</function>\n</tool_call>'
    )
    (call,) = ChatText(Letters()).read(ids_of(text), 4, [SWITCH]).calls
    assert (call.id, call.name) == ("call_4_0", "switch")
    assert call.arguments == {"lamp": "12", "on": True, "level": None, "where": {"floor": 2}}
    broken = text.replace("<parameter=on>", "on:")
    (unread,) = ChatText(Letters()).read(ids_of(broken), 4, [SWITCH]).calls
    assert unread.arguments is None
    assert unread.raw is not None


def test_a_reply_ends_with_its_first_end_token() -> None:
    assert cut_after_end([5, 6, END, 0, 0], [9, END]) == [5, 6, END]
    assert cut_after_end([5, 6], [END]) == [5, 6]


@pytest.fixture
async def house(lamps: Path) -> AsyncIterator[Environment]:
    async with await open_environment({"pack": str(lamps), "user": "scripted"}, say=lambda _: None) as environment:
        yield environment


async def opened(house: Environment, text: ChatText) -> TokenRow:
    episode = await house.reset(house.tasks[0])
    view = episode.view
    return TokenRow(episode, text.opening(view.system, view.messages, view.tools))


async def test_one_turn_is_trained_as_sampled_and_heard_as_answered(house: Environment) -> None:
    text = ChatText(Letters())
    row = await opened(house, text)
    called = ids_of('<tool_call>\n{"name": "switch", "arguments": {"lamp": "kitchen", "on": true}}\n</tool_call>')
    heard = await text.act(row, called, [-0.5] * len(called))
    assert [m.role for m in heard] == ["tool"]
    assert (row.completion_ids, row.mask, row.logprobs) == (called, [1] * len(called), [-0.5] * len(called))
    answered = Letters().decode(row.pending)
    assert (
        answered
        == f"\n<|im_start|>user\n<tool_response>\n{heard[0].text}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    shorter = await text.act(
        row, ids_of("Done."), heard=lambda some: [m.model_copy(update={"content": "-"}) for m in some]
    )
    assert shorter[0].text == "Now the hall lamp off."
    assert "\n-<|im_end|>" in Letters().decode(row.pending)
    assert row.mask.count(1) == len(called) + len(ids_of("Done."))
    await row.episode.close()


async def test_half_a_turn_ends_the_episode_and_is_scored(house: Environment) -> None:
    text = ChatText(Letters())
    row = await opened(house, text)
    assert await text.act(row, [*map(ord, "I will now")]) == ()
    assert row.episode.end is not None
    assert (row.episode.end.kind, row.episode.end.code, row.reward) == ("truncated", "max_tokens", 0.0)
    assert row.episode.messages[-1].text == "I will now"
    await row.episode.close()


async def test_an_episode_in_which_the_policy_never_spoke_has_no_reward(house: Environment) -> None:
    row = await opened(house, ChatText(Letters()))
    await row.episode.stop("max_turns")  # type: ignore[arg-type]
    assert row.episode.reward is not None
    assert row.episode.reward.value == 0.0
    assert row.reward is None
    await row.episode.close()
