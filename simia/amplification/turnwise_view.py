"""A conversation as each side of a turn-by-turn simulation sees it: its own turns are the model's, the others are heard.

Every view is made from the same turns, so exemplars and the conversation that is being made look alike to the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from simia.amplification.reply_schema import result_like
from simia.formats.reply.assemble import Turn
from simia.formats.reply.json_repair import ReadCall
from simia.prompts import decode_result
from simia.trajectory import Message, ToolCall, Trajectory

Chat = list[dict[str, Any]]
NEW = "New conversation."
VALUES = "Values:"  # as hints begin


def as_turns(messages: Sequence[Message]) -> Iterator[Turn]:
    for message in messages:
        calls = [ReadCall(call.name, call.arguments, call.raw, call.id) for call in message.calls]
        yield Turn(message.role, message.text, calls=calls, name=message.name, answers=message.call_id)


def values(seed: Trajectory) -> str:
    """The values that the seed's user gave and a call used, worded as a hint words fresh ones."""
    told = " ".join(message.text for message in seed.messages if message.role == "user").replace(",", "")
    given: dict[str, Any] = {}
    for _, _, call in seed.calls():
        for name, value in (call.arguments or {}).items():
            if not isinstance(value, dict | list | bool) and str(value).replace(",", "") in told:
                given.setdefault(name, value)
    return f"{VALUES} {', '.join(f'{name} {value}' for name, value in given.items())}." if given else ""


def user_view(turns: Sequence[Turn], hint: str) -> Chat:
    """The user speaks, so its turns are the model's; of the assistant it hears the words alone."""
    chat: Chat = [heard(f"{NEW} {hint}".strip())]
    for turn in turns:
        if turn.role == "user":
            chat.append(said({"text": turn.text}))
        elif turn.role == "assistant" and turn.text:
            chat = extended(chat, turn.text)
    return chat


def assistant_view(turns: Sequence[Turn]) -> Chat:
    chat: Chat = []
    names = iter([call.name for turn in turns for call in turn.calls])
    for i, turn in enumerate(turns):
        if turn.role == "user":
            chat.append(heard(f"{NEW if i == 0 else ''}\nUser: {turn.text}".strip()))
        elif turn.role == "tool":
            chat = extended(chat, f"Result of {next(names, turn.name)}: {turn.text}")
        elif turn.calls:
            chat.append(said({"calls": [shown(call) for call in turn.calls]}))
        else:
            chat.append(said({"text": turn.text}))
    return chat


def tool_view(turns: Sequence[Turn], upto: ReadCall | None = None) -> Chat:
    """Calls and their results in order; `upto`: the call that waits, the last thing shown."""
    calls = [call for turn in turns for call in turn.calls]
    results = [turn.text or "" for turn in turns if turn.role == "tool"]
    chat: Chat = []
    for call, result in zip(calls, results, strict=False):
        chat += [heard(asked(call, first=not chat)), said(decode_result(result))]
    return chat if upto is None else [*chat, heard(asked(upto, first=not chat))]


def asked(call: ReadCall, *, first: bool) -> str:
    return f"{NEW if first else ''}\nCall: {orjson.dumps(shown(call)).decode()}".strip()


def shown(call: ReadCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments if call.arguments is not None else call.raw}


def heard(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(value: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": orjson.dumps(value).decode()}


def extended(chat: Chat, text: str) -> Chat:
    """Chat templates want the roles to alternate: what is heard in a row is one message."""
    if chat[-1]["role"] == "user":
        return [*chat[:-1], heard(f"{chat[-1]['content']}\n{text}")]
    return [*chat, heard(text)]


def answers(seed: Trajectory) -> Iterator[tuple[ToolCall, Message]]:
    calls = {call.id: call for _, _, call in seed.calls()}
    for message in seed.messages:
        if message.role == "tool" and message.call_id in calls:
            yield calls[message.call_id], message


def echoing(result: str, then: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The form of an exemplar's result, with the fields that repeat an argument held to the new argument."""
    form, value = result_like(result), decode_result(result)
    if isinstance(value, dict):
        for name in value.keys() & then.keys() & now.keys():
            if value[name] == then[name]:
                form["properties"][name] = {"const": now[name]}
    return form
