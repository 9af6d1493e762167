"""A model as the judge of an episode: 0 or 1, at its end or at the limit of its turns (Simia-RL, §2.3 and App. D).

The prompt has the rules, the task, the reference solution and the quoted transcript (`transcript.py`). The reply is parsed strictly: a
trailing comma or a missing brace is repaired; after `null`, 7 or prose the judge is asked again (`again` times), and then the vote is an
error, never a reward. The majority of k votes decides, and a tie gives 0. Without a readable vote the reward is None.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from simia.config import Config
from simia.envs.reference_solution import describe_reference
from simia.envs.rewards.compose import subtract_penalties
from simia.envs.rewards.transcript import Transcript, write_transcript
from simia.envs.rewards.wording import describe_answer_part
from simia.errors import Code
from simia.formats.reply.reply_json import RepairError, load_json, strip_reasoning
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.pack import Pack
from simia.prompts import load_template
from simia.reward import Reward
from simia.reward_spec import AnswerSpec
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory, Usage

CHARS_A_TOKEN = 3.6
KEPT = 4_096  # latest readable replies kept for equal episodes
AGAIN, SHOWN = "That does not count: {why}. Judge once more, with one JSON object in the form described.", 2_000
# After the verdict: words that may change it. Unlike in `judge_reply`, a plain "not" does not: "the agent was not asked about fees".
RETRACTS = re.compile(
    r"[{\[]|^\W*no\b|\bnot (?:solved|met|done|true|correct|complete\w*)\b"
    r"|\b(?:pass\w*|fail\w*|true|false|but|however|actually|wait|instead|sorry|wrong)\b",
    re.I,
)
NAMES = ("solved", "success", "reward", "score", "completed")
FORM = {
    "type": "object",
    "properties": {
        "why": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "boolean"}},
        "solved": {"type": "boolean"},
    },
    "required": ["why", "solved"],
}


class RewardJudgeSettings(Config):
    """Prompt and sampling settings of the judge."""

    suite: Literal["auto", "generic", "tau", "officebench"] = Field(
        "auto", description="Benchmark whose rules the judge applies. auto: chosen by the pack's name."
    )
    votes: int = Field(
        1, ge=1, description="Number of verdicts to sample. The majority decides; a tie counts as not solved."
    )
    steps: bool = Field(
        False,
        description="Whether to judge each turn too. The share of good turns is the reward part `steps`, which does not change the "
        "reward's value.",
    )
    reference: bool = Field(True, description="Whether to show the reference solution to the judge.")
    observations: bool = Field(
        True,
        description="Whether to show the recorded results of the reference solution's calls, if the pack has them. Only with `reference`.",
    )
    temperature: float | None = Field(0.0, ge=0, description="Sampling temperature. null: the endpoint's default.")
    max_tokens: int | None = Field(
        2048,
        ge=64,
        description="Maximum number of tokens of a verdict, reasoning tokens included. null: the endpoint's limit.",
    )
    again: int = Field(1, ge=0, description="Maximum number of further requests after a verdict that cannot be parsed.")
    context: int = Field(
        60_000, ge=2_000, description="Maximum number of tokens of a prompt. Long results are shortened to fit."
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Additional fields of the request body.")


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote: solved or not, or the reason why no reply could be parsed."""

    solved: bool | None
    why: str = ""
    steps: tuple[bool, ...] = ()
    error: Code | None = None


class RewardJudge:
    """A model that judges one pack's episodes. The owner of `engine` closes it."""

    SYSTEM, REQUEST = "oracle/system.j2", "oracle/request.j2"

    def __init__(self, engine: Engine, pack: Pack, settings: RewardJudgeSettings | None = None) -> None:
        self.engine, self.pack, self.settings = engine, pack, settings or RewardJudgeSettings()
        self.usage = Usage(cost=0.0)
        """Usage of all its verdicts, recalled ones included; the cost is None where any price is unknown."""
        system, _ = load_template(self.SYSTEM)
        self._replies: dict[str, Reply] = {}  # by key, since an engine's journal may keep none
        self._request, _ = load_template(self.REQUEST)
        suite = guess_suite(pack.name) if self.settings.suite == "auto" else self.settings.suite
        tools = [{"name": tool.name, "description": " ".join(tool.description.split())[:300]} for tool in pack.tools]
        self._system = system.render(suite=suite, steps=self.settings.steps, policy=pack.policy, tools=tools).strip()

    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        """The reward of an episode. Never raises for the judge's failures: the value is None then."""
        return await self._judge(trajectory, task)

    async def score_turns(self, trajectory: Trajectory, task: Task) -> Reward:
        """The reward of an episode with `steps`: for each of its n turns, 1/n times the share of votes that call the turn good. Needs
        `steps` in the settings. A verdict with another number of turns counts as unreadable."""
        return await self._judge(trajectory, task, sum(message.role == "assistant" for message in trajectory.messages))

    async def _judge(self, trajectory: Trajectory, task: Task, turns: int | None = None) -> Reward:
        if trajectory.end.kind == "aborted":
            return Reward(error=trajectory.end.code or Code.INTERNAL, rationale="the episode was aborted")
        request = self.request(trajectory, task, turns)
        asks = [self._vote(request, f"{task.id}/{trajectory.id}/{n}", turns) for n in range(self.settings.votes)]
        votes = list(await asyncio.gather(*asks))
        reward = combine_votes(votes)
        if turns and reward.value is not None:
            rows = [vote.steps for vote in votes if vote.solved is not None]
            reward = reward.model_copy(
                update={"steps": [sum(one) / len(one) / turns for one in zip(*rows, strict=True)]}
            )
        return subtract_penalties(reward, task.reward, trajectory)

    def request(self, trajectory: Trajectory, task: Task, turns: int | None = None) -> Request:
        """Write the request for a verdict; with `turns` it says how many entries `steps` must have."""
        settings = self.settings
        parts = [*task.reward.parts, *(part for goal in task.goals for part in goal.parts)]
        answers = [text for part in parts if isinstance(part, AnswerSpec) for text in describe_answer_part(part)]
        room = int(settings.context * CHARS_A_TOKEN) - len(self._system) - (settings.max_tokens or 2048) * 4 - 4_000
        reference = plain = describe_reference(self.pack, task, observations=False) if settings.reference else ""
        if reference and settings.observations:
            reference = describe_reference(self.pack, task)
        transcript = self.transcript(trajectory.messages, room - len(reference) + len(plain))
        text = self._request.render(
            task=task.instruction or task.opening or "\n".join(goal.query for goal in task.goals),
            reference=reference,
            known=settings.reference and task.solved,
            answers=answers if settings.reference else [],
            turns=transcript.lines,
            marker=transcript.marker,
            steps=turns,
            ending=f"{trajectory.end.kind}{f' ({trajectory.end.code.meaning})' if trajectory.end.code else ''}",
        ).strip()
        form = None
        if self.engine.backend.structured:
            form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": FORM}}
        return Request(
            messages=[{"role": "system", "content": self._system}, {"role": "user", "content": text}],
            temperature=settings.temperature, max_tokens=settings.max_tokens, response_format=form, extra_body=dict(settings.extra),
        )  # fmt: skip

    def transcript(self, messages: Sequence[Message], room: int) -> Transcript:
        """Write the turns for the judge, in at most `room` characters."""
        return write_transcript(messages, room)

    async def _vote(self, request: Request, draw: str, turns: int | None = None) -> Vote:
        """Ask until a verdict can be parsed. A further attempt names the fault, since at temperature 0 the same prompt gives the same
        reply. If the reply was truncated, it also doubles `max_tokens`, since reasoning may have used all of them."""
        first, item = request, draw.rpartition("/")[0]
        for attempt in range(1 + self.settings.again):
            try:
                key, reply = await self._ask(request, item, f"{draw}+{attempt}" if attempt else draw)
            except BudgetReached as error:
                return Vote(None, str(error), error=Code.BUDGET)
            except LLMFault as fault:
                return Vote(None, fault.detail or fault.code.meaning, error=fault.code)
            vote, most = parse_verdict(reply.text, turns), request.max_tokens
            if vote.error is None:
                self._keep(key, reply)
                return vote
            said = [
                {"role": "assistant", "content": reply.text.strip()[:SHOWN] or "(nothing)"},
                {"role": "user", "content": AGAIN.format(why=vote.why)},
            ]
            if reply.truncated and most:
                vote = replace(vote, why=f"{vote.why} (it was cut at {most:,} tokens: raise oracle.max_tokens)")
                most *= 2
            request = first.model_copy(update={"messages": [*first.messages, *said], "max_tokens": most})
        return vote

    async def _ask(self, request: Request, item: str, draw: str) -> tuple[str, Reply]:
        """The key of a reply and the reply: one that is kept, or a new one."""
        backend, spent = self.engine.backend, self.usage
        key = make_reply_key(backend.alias, backend.model, request, draw)
        reply = self._replies.get(key) or await self.engine.ask(request, item=item, draw=draw, key=key)
        used = reply.usage
        spent.prompt, spent.completion = spent.prompt + used.prompt, spent.completion + used.completion
        spent.cost = None if spent.cost is None or used.cost is None else spent.cost + used.cost
        return key, reply

    def _keep(self, key: str, reply: Reply) -> None:
        """Keep a readable reply for equal episodes, such as those of a trainer's group that end after this one was judged."""
        self._replies[key] = reply
        while len(self._replies) > KEPT:
            del self._replies[next(iter(self._replies))]


def parse_verdict(text: str, turns: int | None = None) -> Vote:
    """Parse a verdict: `solved` (or a synonym that models use) is true, false, 0 or 1. Anything else is an error. With `turns`, `steps` must
    hold one verdict for each of that many turns."""
    answer = strip_reasoning(text)
    try:
        value, repairs = load_json(answer)
    except RepairError as error:
        return Vote(None, f"the verdict cannot be read: {error}", error=Code.UNPARSABLE)
    _, closed, after = answer.rpartition("}")
    if closed and "missing_bracket" not in repairs and RETRACTS.search(after):
        return Vote(None, f"the text after the verdict may take it back: {after.strip()[:60]!r}", error=Code.UNPARSABLE)
    if not isinstance(value, dict):
        return Vote(None, "the verdict is no object", error=Code.UNPARSABLE)
    given = [value[name] for name in NAMES if name in value]
    words = {True: True, False: False, "true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
    said = {
        words.get(each.strip().lower() if isinstance(each, str) else each)
        if isinstance(each, str | int | float | bool)
        else None
        for each in given
    }
    if len(said) != 1 or None in said:
        return Vote(None, "the verdict says neither true nor false", error=Code.UNPARSABLE)
    steps = value.get("steps")
    kept = tuple(steps) if isinstance(steps, list) and all(isinstance(each, bool) for each in steps) else ()
    if turns is not None and len(kept) != turns:
        why = f"steps must hold {turns} times true or false, one for each turn of the assistant"
        return Vote(None, why, error=Code.UNPARSABLE)
    return Vote(bool(said.pop()), str(value.get("why") or value.get("rationale") or "")[:2000], kept)


def combine_votes(votes: Sequence[Vote]) -> Reward:
    """Combine the parsed votes; a tie gives 0. A resumed run asks again for votes that an outage or the budget prevented. Until then there
    is a reward only if these votes could not change it."""
    known = [vote for vote in votes if vote.solved is not None]
    lost = [vote for vote in votes if vote.solved is None and vote.error is not Code.UNPARSABLE]
    yes = sum(bool(vote.solved) for vote in known)
    open_ = yes * 2 <= len(known) + len(lost) and (yes + len(lost)) * 2 > len(known) + len(lost)
    if not known or (lost and open_):
        first = (lost or votes)[0]
        return Reward(error=first.error or Code.UNSCORED, rationale=first.why)
    solved = yes * 2 > len(known)
    parts = {"oracle": float(solved), "agreement": round(max(yes, len(known) - yes) / len(known), 6)}
    judged = [sum(vote.steps) / len(vote.steps) for vote in known if vote.steps]
    if judged:
        parts["steps"] = round(sum(judged) / len(judged), 6)
    told = next(vote for vote in known if vote.solved == solved)
    return Reward(
        value=float(solved),
        parts=parts,
        rationale=f"oracle, {yes} of {write_count(len(known), 'vote')} for: {told.why}",
    )


def guess_suite(name: str) -> str:
    lower = name.lower()
    return "officebench" if "officebench" in lower else "tau" if lower.startswith("tau") else "generic"
