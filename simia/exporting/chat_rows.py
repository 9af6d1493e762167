"""Rows of chat formats: for TRL's SFTTrainer, and for trainers that apply their own template.

The messages of TRL rows have only a role and a text; calls and results are text in Hermes form, exactly as Qwen's template writes
them. Structured arguments would not work: `datasets` would add nulls to objects, and Qwen2.5's template would quote JSON text a second
time. `turns` rows have a prompt and a completion: TRL masks the prompt of such rows with any template, while `assistant_only_loss`
works only with templates that mark the assistant's tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from simia import formats
from simia.errors import Code, Issue
from simia.exporting.export_records import ExportRow, Format
from simia.exporting.llamafactory_rows import LLaMAFactoryWriter
from simia.formats.dialect import MEMO
from simia.formats.hermes import SHAREGPT, HermesContainer
from simia.formats.llamafactory import UntrainableError, convert_conversation, write_json
from simia.trajectory import Trajectory

# Results are user turns, as in Qwen's template.
ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "user"}
SUITES = ("agentinstruct", "officebench")
REASONING_FIELDS = {"reasoning", "reasoning_content", "reasoning_details", "thinking"}  # of rows from other programs
HERMES = HermesContainer(SHAREGPT)


def iterate_trl_rows(t: Trajectory, trainer: LLaMAFactoryWriter) -> Iterator[ExportRow | Issue]:
    """Yield `whole`: {"messages"}; `turns`: {"prompt", "completion"} for each trained assistant turn."""
    reasoning = trainer.keeps_reasoning(t)
    try:
        c = convert_conversation(t, reasoning=reasoning)  # refused for all trainers
    except UntrainableError as unfit:
        yield unfit.issue
        return
    messages, lengths = make_trl_messages(t, reasoning), trainer.lengths(c)
    if trainer.segment == "whole":
        trained = sum(turn.trained for turn in c.turns)
        if not all(turn.trained for turn in c.turns if turn.is_agents):
            detail = "train: false cannot be set for one turn of a whole trajectory; export with segment=turns"
            yield Issue(code=Code.UNEXPRESSIBLE, where="messages", detail=detail)
        else:
            row = json.dumps({"messages": messages}, ensure_ascii=False)
            yield trainer.explain_excess(lengths[-1], c.turns[-1].place) or ExportRow(row, trained, lengths[-1])
        return
    agents = iter([(turn, length) for turn, length in zip(c.turns, lengths, strict=True) if turn.is_agents])
    for end, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        turn, length = next(agents)
        if turn.trained:
            row = json.dumps({"prompt": messages[:end], "completion": [message]}, ensure_ascii=False)
            yield trainer.explain_excess(length, turn.place) or ExportRow(row, 1, length)


def make_trl_messages(t: Trajectory, reasoning: bool) -> list[dict[str, str]]:
    """Return the conversation as role and text alone."""
    changes: dict[str, Any] = {"extra": {}} if reasoning else {"extra": {}, "reasoning": None}
    kept = [m.model_copy(update=changes) for m in t.messages if m.role != "system"]
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


def iterate_dialect_rows(t: Trajectory, to: Format, trainer: LLaMAFactoryWriter) -> Iterator[ExportRow | Issue]:
    """Write one row in a chat dialect. Its trainers apply their own template and treat all assistant turns alike in the loss, except
    that rows of `openai` and `agentinstruct` can exclude one."""
    for i, message in enumerate(t.messages):
        if message.role == "assistant" and message.train is False and to not in ("agentinstruct", "openai"):
            detail = f"train: false cannot be set for one turn in {to} rows"
            yield Issue(code=Code.UNEXPRESSIBLE, where=f"messages[{i}]", detail=detail)
            return
    if to not in SUITES and not trainer.keeps_reasoning(t):  # their messages contain the thought
        t = drop_reasoning(t)
    if to == "openai":
        t = set_weights(t)
    for i, j, call in t.calls():
        if call.arguments is None:
            yield Issue(code=Code.UNPARSABLE_ARGUMENTS, where=f"messages[{i}].calls[{j}]")
            return
    try:
        if to not in SUITES:
            refuse_broken_turns(t)
        line = write_json(formats.get(to).write(t), "")
    except UntrainableError as unfit:
        yield unfit.issue
        return
    trained = sum(m.role == "assistant" and m.train is not False for m in t.messages)
    # The suites' rows describe the tools in the system text alone.
    tokens = trainer.count_trajectory(t.model_copy(update={"tools": []}) if to in SUITES else t)
    yield trainer.explain_excess(tokens, len(t.messages) - 1) or ExportRow(line, trained, tokens)


def refuse_broken_turns(t: Trajectory) -> None:
    """Raise `UntrainableError` for an assistant message without text and calls, and for a call that the conversation leaves unanswered.

    Calls of the last message may be open: it is trained like any other.
    """
    results = 0
    for i, message in reversed(list(enumerate(t.messages))):
        if message.role == "assistant" and not message.calls and not message.text.strip():
            raise UntrainableError(Code.EMPTY_TURN, f"messages[{i}]", "neither text nor calls")
        if message.role == "tool":
            results += 1
            continue
        if len(message.calls) > results and i + 1 + results < len(t.messages):
            raise UntrainableError(Code.UNPAIRED_CALL, f"messages[{i}]", "a call has no result")
        results = 0


def set_weights(t: Trajectory) -> Trajectory:
    """Return a copy in which assistant messages that are not trained have OpenAI's field `weight: 0`."""
    messages = list(t.messages)
    for i, message in enumerate(messages):
        if message.role == "assistant" and message.train is False and message.extra.get("weight") != 0:
            messages[i] = message.model_copy(update={"extra": {**message.extra, "weight": 0}})
    return t.model_copy(update={"messages": messages})
