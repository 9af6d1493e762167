"""Rows in CodeGym's dialect for supervised training, one call a step (CodeGym B.4, E.2).

LLaMA-Factory and TRL read these rows directly: messages have only a role and a text, roles alternate, and the last turn is the agent's.
A turn with several calls becomes one step per call, each followed by its result; calls refused because only one is allowed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from simia import formats
from simia.errors import Code, Issue
from simia.exporting.chat_rows import drop_reasoning
from simia.exporting.export_records import ExportRow
from simia.exporting.llamafactory_rows import TURN_TOKENS, LLaMAFactoryWriter
from simia.exporting.step_reasons import add_step_reasons
from simia.formats.llamafactory import UntrainableError, convert_conversation, write_json, write_whole
from simia.trajectory import Message, Trajectory

DATASET_INFO = {
    "simia": {
        "file_name": "data.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {
            "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
            "system_tag": "system",
        },
    }
}  # fmt: skip


def iterate_codegym_rows(t: Trajectory, trainer: LLaMAFactoryWriter) -> Iterator[ExportRow | Issue]:
    """Yield the row of a trajectory, or why it has none."""
    reasoning = trainer.keeps_reasoning(t)
    try:
        steps = split_steps(drop_last_results(t.messages))
        t = t.model_copy(update={"messages": add_step_reasons(steps) if trainer.step_reasons else steps})
        write_whole(convert_conversation(t, reasoning=reasoning))  # refuse what LLaMA-Factory's own rows refuse
        shown = t if reasoning else drop_reasoning(t)
        shown = shown.model_copy(update={"system": t.system or None, "extra": {}})
        row = formats.get("codegym").write(shown)
        refuse_placeholders(row["messages"])
        line = write_json({"messages": row["messages"]}, "")
    except UntrainableError as unfit:
        yield unfit.issue
        return
    tokens = sum(trainer.count_tokens(turn["content"]) + TURN_TOKENS for turn in row["messages"])
    yield trainer.explain_excess(tokens, len(t.messages) - 1) or ExportRow(
        line, sum(m.role == "assistant" for m in t.messages), tokens
    )


def drop_last_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages up to the agent's last one: results after it are dropped, as of a tool `done` that ended the episode."""
    end = len(messages)
    while end and messages[end - 1].role == "tool":
        end -= 1
    return list(messages[:end])


def split_steps(messages: Sequence[Message]) -> list[Message]:
    """Make a message of each call, followed by its result. Text and reasoning stay with the first call."""
    found: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if len(message.calls) < 2:
            found.append(message)
            continue
        results: list[Message] = []  # of this turn alone: some dialects restart their call ids in each turn
        while position < len(messages) and messages[position].role == "tool":
            results.append(messages[position])
            position += 1
        first = True
        for call in message.calls:
            result = next((each for each in results if each.call_id == call.id), None)
            if result is not None:
                results.remove(result)
                if result.error == Code.MAX_CALLS:
                    continue
            text = {} if first else {"content": None, "reasoning": None}
            found.append(message.model_copy(update={"calls": [call], **text}))
            found += [] if result is None else [result]
            first = False
        found += results
    return found


def refuse_placeholders(turns: Sequence[dict[str, str]]) -> None:
    """Raise `UntrainableError` for a result that LLaMA-Factory would change: results are user turns here."""
    for number, turn in enumerate(turns):
        if turn["role"] == "user" and "{{idx}}" in turn["content"]:
            detail = "the trainer replaces {{idx}} in a user turn by a number"
            raise UntrainableError(Code.UNEXPRESSIBLE, f"messages[{number}]", detail)


def configure(trainer: LLaMAFactoryWriter) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of LLaMA-Factory's configuration for these rows."""
    for name, text in trainer.configuration():
        yield name, json.dumps(DATASET_INFO, indent=2) + "\n" if name == "dataset_info.json" else text
