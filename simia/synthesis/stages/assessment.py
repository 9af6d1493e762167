"""Assess built environments with two agents, and keep those that behave (EnvScaler §2.3)."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.pack import Pack
from simia.statistics import compute_wilson_interval
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment, DroppedTool
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.assessment_rounds import PlannedRound, Round, RoundChain
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

MOST_UNREADABLE = 0.2  # largest share of rounds with an unreadable reply
LEAST_REACHED = 0.5  # smallest share of rounds whose call reaches a tool
LEAST_JUDGED, LEAST_POSITIVE = (
    3,
    2,
)  # fewest rounds of a tool for a score of its own: of all calls, and of positive calls
LEAST_CONTROLS = 2
MOST_FAILURES = 100  # failed rounds that the report keeps


class AssessmentSettings(Config):
    """The dual-agent assessment of environments (EnvScaler §2.3). Its agents are the roles `tester` and `checker`."""

    rounds: int = Field(default=100, ge=1)
    """Number of test rounds of an environment, with one call each."""
    chains: int = Field(default=5, ge=1)
    """Number of independent sequences of rounds. They run concurrently, each on its own state."""
    threshold: float = Field(default=0.85, ge=0, le=1)
    """Minimum share of passed rounds of an environment that is kept (0 to 1)."""
    tool_threshold: float = Field(default=0.5, ge=0, le=1)
    """Minimum share of passed rounds of a tool, over all rounds and over those with a positive call (0 to 1). Tools below it are dropped, and
    the environment is assessed once more. 0: no tool is dropped. (A tool that does nothing passes all negative calls, which are half of the
    calls.)"""
    check_agent: bool = True
    """Whether the check agent judges calls. false: every call passes unless execution shows a fault (for experiments)."""
    controls: int = Field(default=4, ge=0)
    """Number of control calls: passed calls that the check agent judges again, without their changes in the record. If most of them pass, the
    environment is refused. 0: no controls."""


class Assessment:
    """Play test calls on each environment of the stage `environments`. Output: the environment, perhaps with fewer tools."""

    name = "assessment"

    def __init__(self, settings: AssessmentSettings, rng_seed: int) -> None:
        self._settings, self._rng_seed = settings, rng_seed

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, value) for key, value in outputs.of("environments").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        built = BuiltEnvironment.model_validate(given.value)
        rounds, caught = await self._assess(given.key, built, context, "")
        figures = summarize_rounds(rounds)
        weak = self._list_weak_tools(built, rounds)
        if weak:
            context.note(first_assessment=figures, dropped_tools=weak)
            built = drop_tools(built, weak)
            rounds, caught = await self._assess(given.key, built, context, "b")
            figures = summarize_rounds(rounds)
        context.note(
            **figures, controls=len(caught), controls_caught=sum(caught), check_agent=self._settings.check_agent
        )
        self._refuse_failed(rounds, figures, caught)
        return dump(built)

    async def _assess(
        self, key: str, built: BuiltEnvironment, context: StageContext, prefix: str
    ) -> tuple[list[Round], list[bool]]:
        """Return all rounds in the order of their chains, and for each control whether the check agent failed it, as it should."""
        settings = self._settings
        plan = plan_rounds(f"{self._rng_seed}/{key}/{prefix}", settings.rounds, list(built.tools))
        async with context.execution() as folder, open_backend_of(built, folder / "pack") as backend:
            chains = [
                RoundChain(built, backend, context, number, prefix=prefix, check_agent=settings.check_agent)
                for number in range(min(settings.chains, settings.rounds))
            ]
            parts = await ask_together(*(chain.run(plan[number :: len(chains)]) for number, chain in enumerate(chains)))
            rounds = [each for part in parts for each in part]
            chosen = [each for each in rounds if each.record is not None][: settings.controls]
            return rounds, await ask_together(*(check_control(chains[0], each) for each in chosen))

    def _list_weak_tools(self, built: BuiltEnvironment, rounds: Sequence[Round]) -> list[str]:
        """Return tools with a too small score, except those that another tool calls; none if no tool would be left."""
        weak = []
        for tool in built.tools:
            judged = [each for each in rounds if each.tool == tool and each.outcome in ("passed", "failed")]
            positive = [each for each in judged if each.intent == "positive"]
            for calls, least in ((judged, LEAST_JUDGED), (positive, LEAST_POSITIVE)):
                passed = sum(each.outcome == "passed" for each in calls)
                if len(calls) >= least and passed < self._settings.tool_threshold * len(calls) and tool not in weak:
                    weak.append(tool)
        weak = list_uncalled_tools(weak, {name: each.source for name, each in built.tools.items()})
        return weak if len(weak) < len(built.tools) else []

    def _refuse_failed(self, rounds: Sequence[Round], figures: dict[str, Any], caught: Sequence[bool]) -> None:
        counts = Counter(each.outcome for each in rounds)
        reached = counts["passed"] + counts["failed"]
        if counts["unreadable"] > MOST_UNREADABLE * len(rounds):
            first = next(each for each in rounds if each.outcome == "unreadable")
            detail = f"{counts['unreadable']} of {len(rounds)} rounds, the first {first.name}: {first.reason}"
            raise Refused(Reason.ASSESSMENT_UNREADABLE, detail)
        if reached < LEAST_REACHED * len(rounds):
            raise Refused(
                Reason.ASSESSMENT_UNTESTED, f"{reached} of {len(rounds)} rounds called a tool with valid arguments"
            )
        if len(caught) >= LEAST_CONTROLS and 2 * sum(caught) < len(caught):
            detail = f"it passed {len(caught) - sum(caught)} of {len(caught)} calls whose changes were taken out of the record"
            raise Refused(Reason.CHECKER_BLIND, detail)
        if figures["score"] < self._settings.threshold:
            worst = next(each for each in rounds if each.outcome == "failed")
            detail = (
                f"score {figures['score']:.2f}, {self._settings.threshold:g} is asked for; {worst.call}: {worst.reason}"
            )
            raise Refused(Reason.ASSESSMENT_FAILED, detail)


def list_uncalled_tools(weak: Sequence[str], sources: Mapping[str, str]) -> list[str]:
    """Return the weak tools that no remaining tool calls, directly or through another weak tool. `sources`: of all tools, by name."""
    while True:
        left = "\n".join(source for name, source in sources.items() if name not in weak)
        uncalled = [tool for tool in weak if not re.search(rf"\bself\.{tool}\b", left)]
        if len(uncalled) == len(weak):
            return uncalled
        weak = uncalled


def plan_rounds(word: str, count: int, tools: Sequence[str]) -> list[PlannedRound]:
    """Plan rounds: half positive and half negative calls, each tool about equally often, in a random order seeded by `word`."""
    random = Random(word)
    intents = [("positive", "negative")[number % 2] for number in range(count)]
    targets: list[str] = []
    while len(targets) < count:
        targets += random.sample(tools, len(tools))
    random.shuffle(intents)
    return [
        PlannedRound("positive" if intent == "positive" else "negative", tool)
        for intent, tool in zip(intents, targets, strict=False)
    ]


async def check_control(chain: RoundChain, passed: Round) -> bool:
    """Whether the check agent fails a passed call if the record says that nothing changed. An unreadable reply counts as no."""
    try:
        verdict = await chain.check({**(passed.record or {}), "changes": "[]"}, f"control{passed.name}")
    except Refused:
        return False
    return not verdict.passed


@contextlib.asynccontextmanager
async def open_backend_of(built: BuiltEnvironment, folder: Path) -> AsyncIterator[ExecutableBackend]:
    """The environment's sandbox. Raises `Refused` if its code does not load."""
    write_environment(folder, built)
    backend = ExecutableBackend(Pack.load(folder))
    try:
        try:
            await backend.start()
        except UserError as error:
            raise Refused(Reason.ASSESSMENT_FAILED, f"the environment does not start: {error}") from None
        yield backend
    finally:
        await backend.close()


def drop_tools(built: BuiltEnvironment, names: Sequence[str]) -> BuiltEnvironment:
    """The environment without these tools and the tests that call them."""
    reason = DroppedTool(reason=Reason.ASSESSMENT_FAILED, detail="most test calls of it failed")
    tests = [test for test in built.tests if not {test.call.name, *(each.name for each in test.before)} & set(names)]
    return built.model_copy(
        update={
            "tools": {name: tool for name, tool in built.tools.items() if name not in names},
            "dropped": {**built.dropped, **dict.fromkeys(names, reason)},
            "tests": tests,
        }
    )


def summarize_rounds(rounds: Sequence[Round]) -> dict[str, Any]:
    """The figures of an assessment: the score with its 95 % interval (Wilson), outcomes by tool, failed rounds.

    Calls that broke the schema test simia's validation and not a tool, so they are counted as `invalid` and left out of the score.
    """
    counts = Counter(each.outcome for each in rounds)
    judged = counts["passed"] + counts["failed"]
    low, high = compute_wilson_interval(counts["passed"], judged)
    by_tool: dict[str, Counter[str]] = defaultdict(Counter)
    for each in rounds:
        by_tool[each.tool][each.outcome] += 1
    return {
        "rounds": len(rounds),
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "invalid", "unreadable")},
        "score": counts["passed"] / judged if judged else 0.0,
        "interval": [low, high],
        "by_tool": {tool: dict(sorted(found.items())) for tool, found in sorted(by_tool.items())},
        "failures": [each.note() for each in rounds if each.outcome == "failed"][:MOST_FAILURES],
    }
