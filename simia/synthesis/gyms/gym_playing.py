"""Play solution functions in a gym: each of their calls is a real tool call in a world of the gym's own sandbox (CodeGym §3.3.2).

The function and the gym run in two separate sandboxes; this process passes calls and results between them. So a solution can reach the
hidden inputs only through tools.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.authoring.tool_tests import BROKEN
from simia.authoring.verification_gate import verify_tasks
from simia.envs.environment import Environment
from simia.envs.episode_limits import EpisodeLimits
from simia.envs.play.agent import Agent
from simia.envs.play.player import play
from simia.envs.users import NoUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.reward import Reward
from simia.sandbox.limits import MB, WorkerLimits
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import TRIES, Ending, FunctionLimits, FunctionRunner
from simia.synthesis.gyms.gym_writing import make_task, write_gym
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.stage import StageContext
from simia.task import Task

SOLVE_BY_CALLS = "solve_by_calls"
OBSERVE, DONE = "observe", "done"
EPISODE = EpisodeLimits(turns=600)  # the tasks have limits of their own
AT_ONCE = 8
LONGEST_PLAY = 300  # wall-clock seconds of one play, since tools may be slow


class ToolBroken(Exception):  # noqa: N818 - an ending
    """A tool of the gym timed out, crashed or took too much memory: the play ends."""


@dataclass(slots=True)
class SolverPlay:
    """The result of a solution function on one input."""

    right: bool = False
    """Whether it submitted the reference answer, and returned within its limits."""
    why: str = ""
    """What went wrong."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Its calls that were not refused, as `GymInstance.calls`."""

    @property
    def tools(self) -> set[str]:
        """Names of the tools that it called."""
        return {call["name"] for call in self.calls}


class GymPlayer:
    """A gym opened for solution functions and agents."""

    def __init__(self, gym: GymEnvironment, backend: ExecutableBackend, runner: FunctionRunner, folder: Path) -> None:
        self.gym, self.runner, self._backend, self._folder = gym, runner, backend, folder

    async def observe(self, instance: GymInstance) -> Any:
        """The result of `observe` at the start of an input; None if it fails."""
        async with await self._backend.open(make_task(self.gym, instance)) as world:
            try:
                return (await call_tool(world, OBSERVE, {})).get("value")
            except ToolBroken:
                return None

    async def play(self, source: str, instance: GymInstance, *, only: Collection[str] = ()) -> SolverPlay:
        """Run a solution function on an input. `only`: tools that it may call; empty: all of them."""
        task = make_task(self.gym, instance)
        for _ in range(TRIES):
            played, lost = await self._play_once(source, task, instance.answer, only)
            if lost is None:
                break
        if lost is not None and lost.code is not Code.TOOL_FAILED:
            raise lost
        return played

    async def _play_once(
        self, source: str, task: Task, expected: Any, only: Collection[str]
    ) -> tuple[SolverPlay, Aborted | None]:
        """Play once; return the play, and what was lost if the result says nothing about the function."""
        played = SolverPlay()
        ended = False
        try:
            world = await self._backend.open(task)
        except Aborted as error:
            return SolverPlay(why=str(error)), error
        except UserError as error:  # its state does not accept the inputs
            return SolverPlay(why=str(error)), None

        async def answer(name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
            nonlocal ended
            if ended:
                return {"error": "the episode has ended: the answer was submitted"}
            if only and name not in only:
                return {"error": f"the tool {name!r} cannot be used"}
            found = await call_tool(world, name, arguments)
            if "error" not in found:
                played.calls.append({"name": name, "arguments": arguments})
            ended = bool(found.pop("ends"))
            return found

        try:
            async with asyncio.timeout(LONGEST_PLAY):
                run = await self.runner.run_with_calls(source, SOLVE_BY_CALLS, answer)
            if run.ended not in (Ending.RETURNED, Ending.NO_JSON):
                played.why = str(run)
                return played, None
            submitted = (await world.state()).get("answer") if ended else None
            played.right = ended and answers_match(submitted, expected)
            played.why = "" if played.right else "a wrong answer" if ended else "no answer was submitted"
            return played, None
        except ToolBroken as error:
            played.why = str(error)
            return played, None
        except TimeoutError:
            played.why = f"timed_out: the calls take more than {LONGEST_PLAY} s"
            return played, None
        except Aborted as error:
            played.why = str(error)
            return played, error
        finally:
            await world.close()

    async def play_pack(
        self, instances: Sequence[GymInstance], make_agents: Callable[[Task], Sequence[Agent]], name: str
    ) -> list[list[Reward]]:
        """Write the pack with these inputs, and play agents in each of its tasks, as in ordinary use. Returns the rewards of each task.
        Raises `Aborted` if an episode has no reward."""
        places = asyncio.Semaphore(AT_ONCE)

        async def play_one(task: Task, agent: Agent) -> Reward:
            async with places:
                trajectory = await play(await environment.reset(task), agent)
            reward = trajectory.reward
            if reward is None or reward.value is None:
                raise Aborted(Code.WORKER_LOST, f"{task.id}: {reward.rationale if reward else 'no reward'}")
            return reward

        async with self.open_pack(instances, name) as environment:
            tasks = environment.pack.tasks
            agents = [(task, agent) for task in tasks for agent in make_agents(task)]
            rewards = iter(await ask_together(*(play_one(task, agent) for task, agent in agents)))
            counts = Counter(task.id for task, _ in agents)
            return [[next(rewards) for _ in range(counts[task.id])] for task in tasks]

    @contextlib.asynccontextmanager
    async def open_pack(self, instances: Sequence[GymInstance], name: str) -> AsyncIterator[Environment]:
        """Write the pack with these inputs to a folder of that name, and open it."""
        write_gym(self._folder / name, self.gym, instances)
        pack = Pack.load(self._folder / name)
        backend = ExecutableBackend(pack)
        async with Environment(pack, backend, backend_name="executable", user=NoUser, limits=EPISODE) as environment:
            await backend.start()
            yield environment


async def call_tool(world: ExecutableWorld, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One call: `{"value", "ends"}` or `{"error", "ends"}`. Raises `ToolBroken` for a tool that fails instead of refusing."""
    result = await world.call_one(name, arguments)
    if result.error in BROKEN:
        raise ToolBroken(f"{name}: {result.detail or result.content}"[:300])
    if result.error is not None:
        return {"error": result.content, "ends": result.ends}
    value = result.data if result.data is not None or result.content == "null" else result.content
    return {"value": value, "ends": result.ends}


@contextlib.asynccontextmanager
async def open_gym(gym: GymEnvironment, folder: Path, limits: FunctionLimits) -> AsyncIterator[GymPlayer]:
    """Open a gym in its sandbox, and a second sandbox for the functions that play in it. Raises `Refused` if the code does not load."""
    write_gym(folder / "gym", gym, [])
    pack = Pack.load(folder / "gym")
    bounds = WorkerLimits(memory=limits.memory * MB)
    backend = ExecutableBackend(pack, limits=bounds)
    try:
        await start_gym(backend)
        async with FunctionRunner(folder / "functions", limits) as runner:
            yield GymPlayer(gym, backend, runner, folder)
    finally:
        await backend.close()


async def start_gym(backend: ExecutableBackend) -> None:
    """Load a gym's code in its sandbox. Raises `Refused` if it cannot be loaded."""
    try:
        await backend.start()
    except UserError as error:
        raise Refused(Reason.GYM_FAILS, str(error)) from None


async def pass_gate(player: GymPlayer, instances: Sequence[GymInstance], context: StageContext) -> list[GymInstance]:
    """Run the verification gate on the pack's tasks: the oracle's calls must earn the full reward twice, and agents that do not read the
    task must earn none. Returns the instances that pass. Raises `Refused` if none does."""
    async with player.open_pack(instances, "verified") as environment:
        report = await verify_tasks(environment, environment.pack.tasks, concurrency=AT_ONCE)
    whole = [str(finding) for finding in report.findings if finding.refuses]
    faults = {
        instance.id: [str(finding) for finding in verdict.findings if finding.refuses]
        for instance, verdict in zip(instances, report.verdicts, strict=True)
    }
    kept = [instance for instance in instances if not whole and not faults[instance.id]]
    context.note(gate_passed=len(kept), gate_tried=len(instances))
    if not kept:
        raise Refused(Reason.GYM_GATE_REFUSES, "; ".join([*whole, *next(iter(faults.values()))])[:400])
    return kept
