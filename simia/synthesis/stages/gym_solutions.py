"""Stage `solutions`: check that a gym can be solved only through its tools; make an oracle trajectory for each input (CodeGym §3.3.2, §3.4)."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.formats.dialect import dump_json
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionLimits
from simia.synthesis.gyms.gym_playing import DONE, OBSERVE, SOLVE_BY_CALLS, GymPlayer, SolverPlay, open_gym, pass_gate
from simia.synthesis.gyms.gym_results import INSTANCES, SOLUTIONS, SolvedGym, VerifiedInstances
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.reply_reading import dump, read_python
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.tool import ToolSpec

PROMPT, OBSERVE_PROMPT = "synthesis/gym_solution.j2", "synthesis/gym_observe_only.j2"
ANSWER = "answer"
UNNAMED = "\n\ndef answer_unnamed(observation):\n    return answer(observation)\n"  # for any name of its parameter
SHOWN_OBSERVATION = 2000


class SolutionSettings(Config):
    """Solution functions, and requirements for their calls (CodeGym §3.3.2, §3.4)."""

    k: int = Field(default=10, ge=1)
    """Number of solution functions to write."""
    least_calls: int = Field(default=10, ge=1)
    """Minimum number of calls of the oracle solution on an input."""
    most_calls: int = Field(default=256, ge=1)
    """Maximum number of calls of the oracle solution on an input."""
    least_tools: int = Field(default=4, ge=1)
    """Minimum number of different tools that the oracle solution uses."""
    observe_only: int = Field(default=1, ge=0)
    """Number of further functions that must answer from the result of `observe` alone. None of them should succeed."""
    leak: float = Field(default=0.5, ge=0, le=1)
    """Maximum share of the hard inputs that one function may answer with only `observe` and `done` (0 to 1). A gym is refused if a function
    answers more than this share, and more than a constant answer would. Hard inputs that any function answers in this way are dropped."""
    limits: FunctionLimits = Field(default_factory=FunctionLimits)
    """Limits of one run of a solution function, calls included."""


class SolutionStage:
    """Check that a gym can be solved through its tools, and only through them."""

    name = SOLUTIONS

    def __init__(self, settings: SolutionSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        gyms = outputs.of("gyms")
        return [StageInput(key, {"gym": gyms[key], **found}) for key, found in outputs.of(INSTANCES).items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        gym = GymEnvironment.model_validate(given.value["gym"])
        instances = VerifiedInstances.model_validate({"instances": given.value["instances"]}).instances
        solvers = await self._ask_solvers(gym, context)
        async with context.execution() as folder, open_gym(gym, folder, self._settings.limits) as player:
            plays = {source: await play_until_wrong(player, source, instances) for source in dict.fromkeys(solvers)}
            passing = [source for source in solvers if source and all(play.right for play in plays[source])]
            context.note(k=self._settings.k, passed=len(passing), failures=list_failures(plays))
            if not passing:
                raise Refused(Reason.NOT_SOLVED, describe_failures(plays, instances))
            hard = [instance for instance in instances if instance.level == "hard"]
            leaked = self._refuse_leaks(await find_observe_leaks(player, list(plays), hard), hard, "solver")
            oracle = choose_oracle({source: plays[source] for source in passing}, self._settings.least_tools)
            kept = await pass_gate(player, self._keep(instances, plays[oracle]), context)
            observation = await player.observe((hard or instances)[-1])
        if observers := await self._ask_observers(gym, hard, observation, context):
            async with context.execution() as folder, open_gym(gym, folder, self._settings.limits) as player:
                leaked |= self._refuse_leaks(await find_observer_leaks(player, observers, hard), hard, "observer")
        kept = [instance for instance in kept if instance.id not in leaked]
        context.note(hard=len(hard), answered_by_observe=len(leaked), kept=len(kept), tools=len(gym.tools))
        if not kept:
            raise Refused(Reason.OBSERVE_SUFFICES, "all inputs that are left are answered without any other tool")
        calls = sum(len(instance.calls) for instance in kept) / len(kept)
        context.note(calls=calls, oracle_tools=len(set().union(*(play.tools for play in plays[oracle]))))
        solvers = [source for source in plays if source]
        return dump(SolvedGym(oracle=oracle, instances=kept, solvers=solvers, observers=observers))

    async def _ask_solvers(self, gym: GymEnvironment, context: StageContext) -> list[str]:
        """Ask for k solution functions; an unreadable reply gives an empty text."""
        values = {"task": gym.task, "tools": [describe_tool_for_solver(tool, gym.examples) for tool in gym.tools]}

        async def ask(number: int) -> str:
            with contextlib.suppress(Refused):
                return await context.ask(PROMPT, values, read_solver, label=f"solution{number}")
            return ""

        return await ask_together(*map(ask, range(self._settings.k)))

    async def _ask_observers(
        self, gym: GymEnvironment, hard: Sequence[GymInstance], observation: Any, context: StageContext
    ) -> list[str]:
        """Ask for functions that see only the result of `observe`; return the different ones."""
        values = {"task": gym.task, "observation": dump_json(observation)[:SHOWN_OBSERVATION]}

        async def ask(number: int) -> str:
            with contextlib.suppress(Refused):
                return await context.ask(OBSERVE_PROMPT, values, read_answerer, label=f"observe_only{number}")
            return ""

        asked = await ask_together(*map(ask, range(self._settings.observe_only if hard else 0)))
        return [source for source in dict.fromkeys(asked) if source]

    def _refuse_leaks(self, leaks: Sequence[set[str]], hard: Sequence[GymInstance], who: str) -> set[str]:
        """Return the hard inputs that any function answers by `observe` alone. Raises `Refused` if one function answers too many, and more
        than a constant answer would."""
        most = max(map(len, leaks), default=0)
        constant = max((sum(answers_match(each.answer, other.answer) for other in hard) for each in hard), default=0)
        if most > max(self._settings.leak * len(hard), constant):
            words = f"one {who} answers {most} of {len(hard)} hard inputs without any other tool"
            raise Refused(Reason.OBSERVE_SUFFICES, words)
        return set().union(*leaks)

    def _keep(self, instances: Sequence[GymInstance], plays: Sequence[SolverPlay]) -> list[GymInstance]:
        """Return the instances that the oracle solves with a number of calls within the limits; add these calls."""
        settings = self._settings
        used = set().union(*(play.tools for play in plays))
        if len(used) < settings.least_tools:
            words = f"the oracle uses {len(used)} tools, {', '.join(sorted(used))}; {settings.least_tools} are wanted"
            raise Refused(Reason.FEW_TOOLS_USED, words)
        counts = [len(play.calls) for play in plays]
        kept = [
            instance.model_copy(update={"calls": play.calls})
            for instance, play in zip(instances, plays, strict=True)
            if settings.least_calls <= len(play.calls) <= settings.most_calls
        ]
        if not kept:
            words = f"the oracle makes {min(counts)} to {max(counts)} calls; wanted are {settings.least_calls} to {settings.most_calls}"
            raise Refused(Reason.CALLS_OUT_OF_BOUNDS, words)
        return kept


def read_solver(text: str) -> str:
    """Return Python that defines `solve_by_calls`. Raises `Unreadable`."""
    return require_function(read_python(text), SOLVE_BY_CALLS)


def read_answerer(text: str) -> str:
    """Return Python that defines `answer`. Raises `Unreadable`."""
    return require_function(read_python(text), ANSWER)


def require_function(code: str, name: str) -> str:
    """Return the code if it defines a function of that name at its top level. Raises `Unreadable`."""
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.parse(code).body):
        raise Unreadable(f"the block defines no function `{name}` at its top level")
    return code


def describe_tool_for_solver(tool: ToolSpec, examples: dict[str, str]) -> dict[str, str]:
    """A tool with the usage examples that agents do not see."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dump_json(tool.parameters),
        "example": examples.get(tool.name, ""),
    }


async def play_until_wrong(player: GymPlayer, source: str, instances: Sequence[GymInstance]) -> list[SolverPlay]:
    """Play a function on each input, up to the first input that it does not solve."""
    plays: list[SolverPlay] = []
    for instance in instances:
        plays.append(await player.play(source, instance) if source else SolverPlay(why="the reply could not be read"))
        if not plays[-1].right:
            break
    return plays


def choose_oracle(plays: dict[str, list[SolverPlay]], least_tools: int) -> str:
    """Choose the oracle among the functions that pass: prefer enough tools, then the fewest calls, then the first."""

    def rank(source: str) -> tuple[bool, int]:
        used = set().union(*(play.tools for play in plays[source]))
        return len(used) < least_tools, sum(len(play.calls) for play in plays[source])

    return min(plays, key=rank)


async def find_observe_leaks(player: GymPlayer, sources: Sequence[str], hard: Sequence[GymInstance]) -> list[set[str]]:
    """Return for each solver the hard inputs that it answers when it may call only `observe` and `done`."""
    return [
        {each.id for each in hard if (await player.play(source, each, only=(OBSERVE, DONE))).right}
        for source in sources
        if source
    ]


async def find_observer_leaks(
    player: GymPlayer, sources: Sequence[str], instances: Sequence[GymInstance]
) -> list[set[str]]:
    """Return for each function that sees only the result of `observe` the inputs that it answers."""
    return [
        {each.id for each in instances if await answers_from_observation(player, source, each)} for source in sources
    ]


async def answers_from_observation(player: GymPlayer, source: str, instance: GymInstance) -> bool:
    """Whether a function finds the answer in the result of `observe`."""
    run = await player.runner.run(source + UNNAMED, "answer_unnamed", {"observation": await player.observe(instance)})
    return run.ended is Ending.RETURNED and answers_match(run.value, instance.answer)


def list_failures(plays: dict[str, list[SolverPlay]]) -> list[str]:
    """Why functions fail, one line each."""
    return [found[-1].why for found in plays.values() if not found[-1].right]


def describe_failures(plays: dict[str, list[SolverPlay]], instances: Sequence[GymInstance]) -> str:
    """How far the best function came, and what stopped it."""
    best = max(plays.values(), key=len)
    return f"the best of {len(plays)} different functions solves {len(best) - 1} of {len(instances)} inputs, then: {best[-1].why}"
