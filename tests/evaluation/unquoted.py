"""The oracle as it asked until its transcripts were quoted: the prompts and the rendering that recorded verdicts answered.

A verdict answers exactly one prompt. The 183 verdicts of oracle-shop, oracle-tau and oracle-office stay evidence for the reading of
verdicts and for a judge's eye for subtle faults; `oracle_injected.jsonl` is evidence for the prompts of today.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simia.envs.rewards.judge import RewardJudge
from simia.envs.rewards.transcript import Transcript
from simia.trajectory import Message, write_compact_json

PROMPTS = Path(__file__).parents[1] / "recordings" / "asked" / "oracle"
LONGEST = 4_000


class UnquotedRewardJudge(RewardJudge):
    """Asks with the recorded prompts and with turns as plain lines, which a call's name can forge."""

    SYSTEM, REQUEST = str(PROMPTS / "system.j2"), str(PROMPTS / "request.j2")

    def transcript(self, messages: Sequence[Message], room: int) -> Transcript:
        return Transcript(turns(messages, room), marker="")


def turns(messages: Sequence[Message], room: int) -> list[str]:
    """What happened, a line for each message; results are shortened until all has room."""
    for most in (LONGEST, 1_000, 300, 100):
        lines = [line(message, most) for message in messages]
        if sum(map(len, lines)) <= room:
            break
    return lines


def line(message: Message, most: int) -> str:
    text = " ".join(message.text.split())
    text = text if len(text) <= most else f"{text[:most]} … (shortened)"
    who = {"user": "User", "assistant": "Assistant", "tool": "Result"}.get(message.role, message.role)
    by_user = message.visible_to == ["user"]
    calls = "".join(
        f"\n{'User' if by_user else 'Assistant'} calls {call.name} {write_compact_json(call.arguments) if call.arguments is not None else call.raw}"
        for call in message.calls
    )
    if message.role == "tool":
        return f"{'Result for the user' if by_user else who}{' (error)' if message.error else ''}: {text}"
    return (f"{who}: {text}" if text else "") + (calls if text else calls.lstrip())
