"""Rows for TRL's SFTTrainer: conversations of role and text alone, calls and results in Hermes' words.

Two traps decide the form. Arguments as objects would be filled with nulls by `datasets`, and as JSON text they would be quoted a
second time by Qwen2.5's template; so calls are written out, exactly as Qwen's template would. And `assistant_only_loss` works only
with templates that mark the assistant's tokens; so `turns` rows are prompt and completion, whose loss TRL masks whatever the
template is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from simia.errors import Code, Issue
from simia.exporting.facts import Segment
from simia.exporting.llamafactory import ExportRow
from simia.formats.hermes import SHAREGPT, HermesContainer
from simia.formats.llamafactory import UntrainableError, convert_conversation
from simia.trajectory import Trajectory

# Results stand in user turns, as Qwen has them.
ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "user"}
HERMES = HermesContainer(SHAREGPT)


def iterate_trl_rows(t: Trajectory, segment: Segment, reasoning: bool) -> Iterator[ExportRow | Issue]:
    """Yield `whole`: {"messages"}; `turns`: {"prompt", "completion"} for each trained assistant turn."""
    try:
        convert_conversation(t, reasoning=reasoning)  # what no trainer carries exactly is refused alike
    except UntrainableError as unfit:
        yield unfit.issue
        return
    kept = [m if reasoning else m.model_copy(update={"reasoning": None}) for m in t.messages if m.role != "system"]
    told = HERMES.write(t.model_copy(update={"system": t.system or None, "messages": kept, "extra": {}}))[
        "conversations"
    ]
    messages = [{"role": ROLES[turn["from"]], "content": turn["value"]} for turn in told]
    trained = [message.train is not False for message in kept if message.role == "assistant"]
    if segment == "whole":
        if not all(trained):
            detail = "train: false cannot be said of one turn of a whole trajectory; export with segment=turns"
            yield Issue(code=Code.UNEXPRESSIBLE, where="messages", detail=detail)
        else:
            yield ExportRow(json.dumps({"messages": messages}, ensure_ascii=False), len(trained), 0)
        return
    at = iter(trained)
    for end, message in enumerate(messages):
        if message["role"] == "assistant" and next(at):
            row = {"prompt": messages[:end], "completion": [message]}
            yield ExportRow(json.dumps(row, ensure_ascii=False), 1, 0)
