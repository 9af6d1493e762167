"""Try a gym in the sandbox: it must load, its tools must do what they declare, and `observe` and `done` must not reveal inputs or answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.authoring.tool_tests import BROKEN
from simia.envs.play.random_arguments import Sampler
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, UserError
from simia.formats.dialect import dump_json
from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from simia.synthesis.design import GymEnvironment, SolvedExample
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.gym_code import DONE, OBSERVE, GymFault
from simia.synthesis.gyms.gym_writing import ANSWER, make_state, write_gym
from simia.synthesis.gyms.hidden_inputs import (
    find_observed_input,
    find_shown_input,
    reveals_answer,
    shows,
    shows_all_inputs,
)
from simia.synthesis.reasons import Reason
from simia.task import Action, Task
from simia.tool_test import Expectation, ToolTest
from simia.trajectory import digest

LIMITS = WorkerLimits(wall=3.0, start=20.0, memory=128 * MB)
RANDOM_CALLS = 20
"""Random schema-valid calls in each example; half of them are repeated with small integers."""
SMALL, FAR = 12, 1_000_000
"""Small integers are below the first number, so that they can be valid indices; the second one is beyond any index."""
SHOWN = 300
Call = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class GymTrial:
    """What a trial found."""

    faults: list[GymFault] = field(default_factory=list)
    """What is wrong; the trial ends at the first ones."""
    examples: dict[str, str] = field(default_factory=dict)
    """Usage examples by tool: executed calls with their results."""
    tests: list[ToolTest] = field(default_factory=list)
    """The same as tests."""
    calls: int = 0
    """Calls that were executed."""


async def try_gym(gym: GymEnvironment, calls: Sequence[Call], folder: Path) -> GymTrial:
    """Write the gym as a pack to a new folder, and execute it on the examples of its problem.

    Args:
        gym: the gym; it needs no usage examples yet.
        calls: example calls, all in one episode of the first example.
        folder: where the pack is written.
    """
    write_gym(folder, gym, [])
    backend = ExecutableBackend(Pack.load(folder), limits=LIMITS)
    rehearsal = GymRehearsal(gym, list(calls), backend)
    try:
        await backend.start()
        await rehearsal.run()
    except UserError as error:
        rehearsal.add(Reason.GYM_FAILS, str(error).split(": ", 1)[-1])
    except Aborted as error:
        rehearsal.add(Reason.GYM_FAILS, f"the state cannot be read: {error}")
    finally:
        await backend.close()
    return rehearsal.trial


class GymRehearsal:
    """One trial in a running sandbox."""

    def __init__(self, gym: GymEnvironment, calls: list[Call], backend: ExecutableBackend) -> None:
        self._gym, self._calls, self._backend = gym, calls, backend
        self._examples = gym.problem.examples
        self._refusals: dict[str, list[tuple[str, Any]]] = {}
        self.trial = GymTrial()

    def add(self, reason: Reason, words: str) -> None:
        self.trial.faults.append(GymFault(reason, words))

    async def run(self) -> None:
        """Run the steps, and stop after the first one with faults, since later faults may be its consequences."""
        for step in (self._observe, self._play_examples, self._submit, self._play_at_random, self._check_refusals):
            await step()
            if self.trial.faults:
                return

    async def _open(self, example: SolvedExample) -> ExecutableWorld:
        return await self._backend.open(Task(id="trial", initial={"state": make_state(example.inputs)}))

    async def _call(self, world: ExecutableWorld, name: str, arguments: dict[str, Any]) -> ToolResult:
        self.trial.calls += 1
        result = await world.call_one(name, arguments)
        if result.error in BROKEN:
            words = f"{write_example_call(name, arguments)} fails: {result.detail or result.content}; refuse bad arguments with ToolError"
            self.add(Reason.GYM_FAILS, words[: 2 * SHOWN])
        return result

    async def _observe(self) -> None:
        """Call `observe`, and all tools without parameters, at the start of each example."""
        largest = max(self._examples, key=lambda example: len(dump_json(example.inputs)))
        names = [
            OBSERVE,
            *(tool.name for tool in self._gym.tools if not tool.parameters["properties"] and tool.name != OBSERVE),
        ]
        for name in names:
            results = []
            for example in self._examples:
                async with await self._open(example) as world:
                    self._check_start(example, await world.state())
                    result = await self._call(world, name, {})
                if self.trial.faults:
                    return
                value = read_result_value(result)
                results.append(value)
                if name == OBSERVE and result.error:
                    return self.add(Reason.GYM_FAILS, f"observe is refused: {result.content[:SHOWN]}")
                shown = (
                    find_observed_input(value, example.inputs)
                    if name == OBSERVE
                    else find_shown_input(value, example.inputs, {})
                )
                if shown:
                    return self.add(
                        Reason.OBSERVE_REVEALS,
                        f"`{name}` returns the whole input `{shown}`: show sizes and parameters only, and single elements by other tools",
                    )
                if name == OBSERVE and example is largest and shows_all_inputs(value, example.inputs):
                    return self.add(
                        Reason.OBSERVE_REVEALS,
                        "`observe` returns every input: leave out at least one, which other tools show in parts",
                    )
            if reveals_answer(results, [example.answer for example in self._examples]):
                self.add(
                    Reason.ANSWER_REVEALED,
                    f"`{name}` returns the answer at the start: no tool solves the task in one call",
                )

    def _check_start(self, example: SolvedExample, state: Any) -> None:
        held = {name: state.get(name) for name in example.inputs} if isinstance(state, dict) else {}
        if not answers_match(held, example.inputs):
            self.add(
                Reason.GYM_MALFORMED, f"`State` does not keep the inputs as they are: {str(example.inputs)[:SHOWN]}"
            )
        elif state.get(ANSWER, 0) is not None:
            self.add(Reason.GYM_MALFORMED, f"`State.{ANSWER}` must be None at the start")

    async def _play_examples(self) -> None:
        """Make the example calls in the first example, where all succeed, and in the others, where some may be refused."""
        for number, example in enumerate(self._examples):
            async with await self._open(example) as world:
                made: list[Action] = []
                for name, arguments in self._calls:
                    result = await self._step(world, example, name, arguments)
                    if number == 0 and result.error and not self.trial.faults:
                        words = f"example call {write_example_call(name, arguments)} is refused with the inputs {str(example.inputs)[:SHOWN]}: "
                        self.add(Reason.GYM_FAILS, words + result.content[:SHOWN])
                    if self.trial.faults or result.ends:
                        break
                    if number == 0:
                        self._keep_example(made, Action(name=name, arguments=arguments), result)

    def _keep_example(self, made: list[Action], call: Action, result: ToolResult) -> None:
        line = f"{write_example_call(call.name, call.arguments)} -> {result.content[:SHOWN]}"
        seen = self.trial.examples.get(call.name)
        if seen is None:
            start = {"state": make_state(self._examples[0].inputs)}
            expect = Expectation(result=read_result_value(result))
            self.trial.tests.append(ToolTest(name=call.name, initial=start, before=[*made], call=call, expect=expect))
        if seen is None or (line not in seen.splitlines() and seen.count("\n") < 2):
            self.trial.examples[call.name] = line if seen is None else f"{seen}\n{line}"
        made.append(call)

    async def _submit(self) -> None:
        """Submit each example's answer in every example: `done` ends the episode, and its result does not depend on the inputs."""
        for submitted in [example.answer for example in self._examples]:
            seen: set[str] = set()
            for example in self._examples:
                async with await self._open(example) as world:
                    result = await self._call(world, DONE, {ANSWER: submitted})
                    state = await world.state()
                if self.trial.faults:
                    return
                if result.error:
                    return self.add(
                        Reason.GYM_FAILS,
                        f"done({dump_json(submitted)}) is refused, though it is an answer of the problem: {result.content[:SHOWN]}",
                    )
                if not result.ends or not answers_match(state.get(ANSWER), submitted):
                    return self.add(
                        Reason.GYM_FAILS,
                        f"after done({dump_json(submitted)}) the episode goes on, or state.answer is {state.get(ANSWER)!r}",
                    )
                seen.add(result.content)
            if len(seen) > 1:
                return self.add(
                    Reason.ANSWER_REVEALED,
                    "the result of `done` depends on the inputs: return the same for right and wrong answers",
                )
        answer = self._examples[0].answer
        self._keep_example([], Action(name=DONE, arguments={ANSWER: answer}), result)

    async def _play_at_random(self) -> None:
        """Make schema-valid calls with random and extreme values: none may fail, and one that reads or is refused may change nothing."""
        tools = [tool for tool in self._gym.tools if tool.name != DONE]
        for number, example in enumerate(self._examples):
            rng = random.Random(f"{self._gym.problem.id}/{number}")
            size = max(
                [len(value) for value in example.inputs.values() if isinstance(value, list | dict | str)], default=1
            )
            calls = [(tool, Sampler(rng).object(tool.parameters)) for tool in rng.choices(tools, k=RANDOM_CALLS)]
            calls += [(tool, shrink_integers(arguments, rng)) for tool, arguments in calls[: RANDOM_CALLS // 2]]
            calls += [
                (tool, set_integers(Sampler(rng).object(tool.parameters), first, others))
                for tool in tools
                if tool.parameters["properties"]
                for first, others in ((0, 0), (-1, -1), (FAR, FAR), (0, size), (0, size - 1), (1, size), (1, size - 1))
            ]
            async with await self._open(example) as world:
                for tool, arguments in calls:
                    await self._step(world, example, tool.name, arguments)
                    if self.trial.faults:
                        return

    async def _step(
        self, world: ExecutableWorld, example: SolvedExample, name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        """Make one call, and check what must hold for every call."""
        before = digest(await world.state())
        result = await self._call(world, name, arguments)
        if self.trial.faults:
            return result
        call = write_example_call(name, arguments)
        if (result.error or name not in self._gym.tool_writes) and digest(await world.state()) != before:
            how = "is refused" if result.error else "is marked @read"
            self.add(Reason.GYM_FAILS, f"{call} {how} and changes the state: mark `{name}` @write")
        elif shown := find_shown_input(read_result_value(result), example.inputs, arguments):
            self.add(Reason.OBSERVE_REVEALS, f"{call} returns the whole input `{shown}`: one call shows a small part")
        if result.error and not shows(arguments, example.answer):
            self._refusals.setdefault(name, []).append((result.content, example.answer))
        return result

    async def _check_refusals(self) -> None:
        """Check that the text of a refusal does not name the answer."""
        for name, found in self._refusals.items():
            answers = {dump_json(answer): answer for _, answer in found}
            texts = [" ".join(text for text, given in found if dump_json(given) == key) for key in answers]
            if reveals_answer(texts, list(answers.values())):
                self.add(Reason.ANSWER_REVEALED, f"errors of `{name}` name the answer")


def read_result_value(result: ToolResult) -> Any:
    """What a call returned, as JSON."""
    return result.content if result.data is None else result.data


def write_example_call(name: str, arguments: dict[str, Any]) -> str:
    """A call as usage examples show it."""
    return f"{name}({', '.join(f'{key}={dump_json(value)}' for key, value in arguments.items())})"


def shrink_integers(value: Any, rng: random.Random) -> Any:
    """The value with small integers in place of its integers."""
    if isinstance(value, dict):
        return {key: shrink_integers(each, rng) for key, each in value.items()}
    if isinstance(value, list):
        return [shrink_integers(each, rng) for each in value]
    return rng.randrange(SMALL) if isinstance(value, int) and not isinstance(value, bool) else value


def set_integers(arguments: dict[str, Any], first: int, others: int) -> dict[str, Any]:
    """The arguments with the first integer, and all others, replaced."""
    names = [name for name, value in arguments.items() if isinstance(value, int) and not isinstance(value, bool)]
    return {**arguments, **{name: others if number else first for number, name in enumerate(names)}}
