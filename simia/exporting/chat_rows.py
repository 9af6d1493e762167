"""Rows of chat formats: for TRL's SFTTrainer, and for trainers that apply their own template.

The messages of TRL rows have only a role and a text; calls and results are text in Hermes form, exactly as Qwen's template writes
them. Structured arguments would not work: `datasets` would add nulls to objects, and Qwen2.5's template would quote JSON text a second
time. `turns` rows have a prompt and a completion: TRL masks the prompt of such rows with any template, while `assistant_only_loss`
works only with templates that mark the assistant's tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from simia import formats
from simia.errors import Code, Issue
from simia.exporting.export_records import ExportRow, Format, Segment
from simia.formats.dialect import MEMO
from simia.formats.hermes import SHAREGPT, HermesContainer
from simia.formats.llamafactory import UntrainableError, convert_conversation, write_json
from simia.trajectory import Trajectory

# Results are user turns, as in Qwen's template.
ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "user"}
SUITES = ("agentinstruct", "officebench")
REASONING_FIELDS = {"reasoning", "reasoning_content", "reasoning_details", "thinking"}  # of rows from other programs
HERMES = HermesContainer(SHAREGPT)


def iterate_trl_rows(t: Trajectory, segment: Segment, reasoning: bool) -> Iterator[ExportRow | Issue]:
    """Yield `whole`: {"messages"}; `turns`: {"prompt", "completion"} for each trained assistant turn."""
    try:
        convert_conversation(t, reasoning=reasoning)  # refused for all trainers
    except UntrainableError as unfit:
        yield unfit.issue
        return
    messages = make_trl_messages(t, reasoning)
    trained = [message.train is not False for message in t.messages if message.role == "assistant"]
    if segment == "whole":
        if not all(trained):
            detail = "train: false cannot be set for one turn of a whole trajectory; export with segment=turns"
            yield Issue(code=Code.UNEXPRESSIBLE, where="messages", detail=detail)
        else:
            yield ExportRow(json.dumps({"messages": messages}, ensure_ascii=False), len(trained))
        return
    at = iter(trained)
    for end, message in enumerate(messages):
        if message["role"] == "assistant" and next(at):
            row = {"prompt": messages[:end], "completion": [message]}
            yield ExportRow(json.dumps(row, ensure_ascii=False), 1)


def make_trl_messages(t: Trajectory, reasoning: bool) -> list[dict[str, str]]:
    """Return the conversation as role and text alone."""
    kept = [m if reasoning else m.model_copy(update={"reasoning": None}) for m in t.messages if m.role != "system"]
    written = HERMES.write(t.model_copy(update={"system": t.system or None, "messages": kept, "extra": {}}))
    return [{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in written["conversations"]]


def drop_reasoning(t: Trajectory) -> Trajectory:
    """Return a copy without reasoning: neither in the messages, nor in fields of other programs or the original form of a turn."""
    messages = []
    for message in t.messages:
        if message.reasoning is not None or REASONING_FIELDS & message.extra.keys():
            extra = {key: value for key, value in message.extra.items() if key not in {*REASONING_FIELDS, MEMO}}
            message = message.model_copy(update={"reasoning": None, "extra": extra})
        messages.append(message)
    return t.model_copy(update={"messages": messages})


def iterate_dialect_rows(t: Trajectory, to: Format, reasoning: bool) -> Iterator[ExportRow | Issue]:
    """Write one row in a chat dialect. Its trainers apply their own template and treat all assistant turns alike in the loss, except
    that rows of `openai` and `agentinstruct` can exclude one."""
    for i, message in enumerate(t.messages):
        if message.role == "assistant" and message.train is False and to not in ("agentinstruct", "openai"):
            detail = f"train: false cannot be set for one turn in {to} rows"
            yield Issue(code=Code.UNEXPRESSIBLE, where=f"messages[{i}]", detail=detail)
            return
    if not reasoning and to not in SUITES:  # their messages contain the thought
        t = drop_reasoning(t)
    if to == "openai":
        t = set_weights(t)
    for i, j, call in t.calls():
        if call.arguments is None:
            yield Issue(code=Code.UNPARSABLE_ARGUMENTS, where=f"messages[{i}].calls[{j}]")
            return
    try:
        line = write_json(formats.get(to).write(t), "")
    except UntrainableError as unfit:
        yield unfit.issue
        return
    yield ExportRow(line, trained=sum(m.role == "assistant" and m.train is not False for m in t.messages))


def set_weights(t: Trajectory) -> Trajectory:
    """Return a copy in which assistant messages that are not trained have OpenAI's field `weight: 0`."""
    messages = list(t.messages)
    for i, message in enumerate(messages):
        if message.role == "assistant" and message.train is False and message.extra.get("weight") != 0:
            messages[i] = message.model_copy(update={"extra": {**message.extra, "weight": 0}})
    return t.model_copy(update={"messages": messages})
