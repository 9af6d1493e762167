"""Print a trajectory as a conversation on the terminal.

A model wrote the trajectory, so it may contain anything. It is printed as plain text, without markup and without
control characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from simia.report.console import make_plain_text
from simia.trajectory import Message, ToolCall, Trajectory

COLOURS = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "system": "bold"}


def print_trajectory(t: Trajectory, console: Console) -> None:
    """Print the messages and issues. The policy and the tools are omitted: they are the same for the whole pack."""
    origin = f" from seed {', '.join(t.provenance.seed_ids)}" if t.provenance.seed_ids else ""
    console.rule(make_plain_text(f"{t.task_id or t.id}{origin}"), style="dim")
    for message in t.messages:
        print_message(message, console)
    for issue in t.issues:
        console.print(make_plain_text(f"! {issue}", "red"))
    console.rule(style="dim")


def print_message(message: Message, console: Console) -> None:
    if message.role == "tool":
        failed = " (error)" if message.error else ""
        console.print(
            indent_text(make_plain_text(f"← {message.name or 'result'}{failed}", "red" if failed else "yellow"), 2)
        )
        console.print(indent_text(make_plain_text(message.text), 4))
        return
    console.print(Text(message.role, style=COLOURS[message.role]))
    if message.reasoning:
        console.print(indent_text(make_plain_text(f"thinks: {message.reasoning}", "dim"), 2))
    if message.text:
        console.print(indent_text(make_plain_text(message.text), 2))
    for call in message.calls:
        console.print(
            indent_text(
                Text.assemble(
                    make_plain_text("→ ", "magenta"), make_plain_text(call.name, "magenta"), format_call(call)
                ),
                2,
            )
        )


def list_outcome_lines(row: Mapping[str, Any]) -> list[str]:
    """Describe the reward of an episode with its parts and reasons, and its ending. `row`: its stored trajectory."""
    reward, end = row.get("reward") or {}, row.get("end") or {}
    parts = ", ".join(f"{name} {value:g}" for name, value in (reward.get("parts") or {}).items())
    value = "none" if reward.get("value") is None else f"{reward['value']:g}"
    lines = [f"reward: {value}" + (f" ({parts})" if parts else "")]
    lines += [f"why: {reason}" for reason in (reward.get("rationale") or "").splitlines()]
    return [*lines, f"ended: {end.get('kind', 'terminated')}, {end.get('code', 'no reason')}"]


def format_call(call: ToolCall) -> Text:
    if call.arguments is None:
        return make_plain_text(f" with arguments that are not JSON: {call.raw}", "red")
    return make_plain_text(
        "(" + ", ".join(f"{name}={orjson.dumps(v).decode()}" for name, v in call.arguments.items()) + ")"
    )


def indent_text(text: Text, by: int) -> Padding:
    return Padding(text, (0, 0, 0, by))
