"""Make rows that train a simulator. Each recorded call of an executable rollout becomes one row: the prompt that the simulated world would
send for this call, and the true answer with its changes.

The simulated world itself writes the prompt, so that a trained model sees the same prompts when it is used. The states before and after
each call come from a replay of the recorded calls in the pack's code.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from simia.config import parse_config
from simia.envs.opening import list_packs, load_tasks
from simia.envs.several_packs import CombinedPack
from simia.envs.worlds.executable import ExecutableBackend, make_executable_backend
from simia.envs.worlds.executable_settings import ExecutableSettings
from simia.envs.worlds.recorded_states import RecordedStep, ReplayDivergedError, replay_calls
from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall
from simia.envs.worlds.simulated.stateful_world import StatefulWorld
from simia.errors import Aborted, Code, UserError
from simia.evaluation.simulator_score import SimulatorTruth, make_truth
from simia.exporting.simulator_settings import SimulatorConfig
from simia.exporting.teacher_episodes import iterate_episodes
from simia.exporting.token_estimate import CountTokens
from simia.jobs import Run
from simia.json_values import iterate_plain_values, iterate_strings
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.search_path import searching_from
from simia.state import diff_states
from simia.task import Task
from simia.trajectory import Trajectory, digest, write_compact_json

log = logging.getLogger(__name__)
TURN_TOKENS = 6  # of a chat template around one message
BACKENDS = ("executable", "shadow")
TRAIN = "train"
EVALUATION = "episodes of tasks that are for evaluation only"
NOT_EXECUTABLE = "episodes that were not executed"
DIVERGED = "episodes whose calls give other results today"
DISTURBED = "episodes whose results were disturbed (perturb)"
NOT_OPENED = "episodes that cannot be set up today"
EXECUTED = "calls that the pack's code answers (world.compute: reads)"
CRASHED = "calls that the world did not carry out"
TOO_LONG = "rows longer than the cutoff"
UNSHOWN = "rows whose result has texts of the state that the prompt does not show"


@dataclass(frozen=True, slots=True)
class SimulatorRow:
    """One call: the prompt, the answer, and the values that scoring needs."""

    pack: str
    task: str
    split: str
    tool: str
    arguments: dict[str, Any]
    messages: list[dict[str, Any]]
    """System, request and answer."""
    truth: SimulatorTruth
    tokens: int

    @property
    def effect(self) -> str:
        """Hash of call, result and changes. Rows with equal hashes are duplicates, even if their prompts differ."""
        return digest([self.pack, self.tool, self.arguments, self.messages[-1]["content"]])

    def write(self) -> dict[str, Any]:
        """The row as JSON. `truth` is text, since its values have no common type."""
        return {
            "messages": self.messages, "pack": self.pack, "task": self.task, "tool": self.tool,
            "outcome": "error" if self.truth.failed else "result", "delta": self.truth.delta,
            "truth": self.truth.model_dump_json(exclude_defaults=True),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowSource:
    """A rollout whose calls became rows, for the card."""

    run: str
    agent: str
    """The model, or the agent without one."""
    packs: dict[str, str]
    """Name → licence."""
    contents: str
    """Hash of the packs and tasks as the run read them, used in place of a version."""
    config: str
    """Hash of the run's config."""


@dataclass(slots=True)
class CollectedRows:
    """The rows of runs, and how many episodes, calls and rows were left out, by reason.

    `too_long`: tokens and |Δ| of each row that is longer than the cutoff.
    """

    rows: list[SimulatorRow] = field(default_factory=list)
    episodes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    too_long: list[tuple[int, int]] = field(default_factory=list)
    sources: list[RowSource] = field(default_factory=list)


async def collect_rows(
    run: Run, config: SimulatorConfig, count: CountTokens, found: CollectedRows, hide: Callable[[str], set[str]]
) -> None:
    """Add the rows of a rollout. `hide`: pack → tools that the prompts of other tools must not show. Raises `UserError`."""
    if not run.is_rollout:
        raise UserError(f"run {run.id} is not a rollout: simulator rows are made of rollouts in executable worlds")
    settings = parse_config(RolloutConfig, run.saved_config(), where=f"run {run.id}")
    with searching_from(run.start_folder):
        pack, _ = load_tasks(settings)
    tasks = {task.id: task for task in pack.tasks}
    names = list(pack.members) if isinstance(pack, CombinedPack) else [""]
    async with AsyncExitStack() as stack:
        worlds: dict[str, RowMaker] = {}
        facts = run.ledger.meta("facts") or {}
        packs = {each.name: each.licence for _, each in list_packs(settings, pack)}
        found.sources.append(
            RowSource(
                run.id,
                str(facts.get("model", "unknown")),
                packs,
                str(facts.get("contents", "unknown")),
                digest(run.saved_config()),
            )
        )
        for name, (own, each) in zip(names, list_packs(settings, pack), strict=True):
            if each.executable is None:
                raise UserError(f"run {run.id}: pack {each.name} has no code, so its states are not known")
            kept = {key: value for key, value in own.backend_settings.items() if key in ExecutableSettings.model_fields}
            code = make_executable_backend(each, **kept)
            stack.push_async_callback(code.close)
            worlds[name] = RowMaker(each, code, config, count, hide(each.name))
        for item, body in iterate_episodes(run):
            t = Trajectory.from_row(body)
            found.episodes += 1
            maker = worlds[item.spec["task"].partition("/")[0] if len(names) > 1 or names[0] else ""]
            await maker.add(t, tasks.get(item.spec["task"]), found)


class RowMaker:
    """Makes the rows of one pack's episodes."""

    def __init__(
        self, pack: Pack, code: ExecutableBackend, config: SimulatorConfig, count: CountTokens, hidden: set[str]
    ) -> None:
        """`hidden`: tools that the prompts of other tools must not show."""
        self.pack, self.config, self.hidden = pack, config, hidden
        self._code, self._count = code, count
        settings = config.world.model_dump(exclude_unset=True)
        self._simulated = SimulatedBackend(pack, code=code, **settings)
        if config.world.dialect not in ("simia", "brief"):
            raise UserError(
                f"world.dialect is {config.world.dialect}, whose answers contain no changes: set world.dialect to simia or brief"
            )
        self._texts: tuple[Any, frozenset[str]] = (None, frozenset())

    async def add(self, t: Trajectory, task: Task | None, found: CollectedRows) -> None:
        """Add the rows of one episode, or count why it has none."""
        if t.extra.get("evaluation") is True:
            found.left_out[EVALUATION] += 1
        elif t.extra.get("backend") not in BACKENDS:
            found.left_out[NOT_EXECUTABLE] += 1
        elif task is None:
            found.left_out[NOT_OPENED] += 1
        else:
            try:
                steps = await replay_calls(self._code, task, t)
                found.rows += await self._make_rows(t, task, steps, found)
            except ReplayDivergedError as error:
                if any(each.happened for each in t.perturbations):
                    found.left_out[DISTURBED] += 1
                else:
                    log.warning("%s: %s", t.provenance.item, error)
                    found.left_out[DIVERGED] += 1
            except (UserError, Aborted) as error:
                log.warning("%s: %s", t.provenance.item, error)
                found.left_out[NOT_OPENED] += 1

    async def _make_rows(
        self, t: Trajectory, task: Task, steps: list[RecordedStep], found: CollectedRows
    ) -> list[SimulatorRow]:
        names = [tool.name for tool in self.pack.tools] if task.tools is None else task.tools
        shown = task.model_copy(update={"tools": [name for name in names if name not in self.hidden]})
        rows: list[SimulatorRow] = []
        world = await self._simulated.open(shown if self.hidden else task, seed=int(t.extra.get("seed", 0)))
        try:
            for step in steps:
                if step.result.error not in (None, Code.TOOL_ERROR):
                    found.left_out[CRASHED] += 1
                elif self._simulated.is_executed(step.call.name, step.by):
                    found.left_out[EXECUTED] += 1
                else:
                    prompt = world.messages([step.call], step.by)
                    if step.call.name in self.hidden:
                        prompt[0]["content"] = self._simulated.feedback.write_system(task)
                    row = self._make_row(task, step, prompt, found)
                    rows += [] if row is None else [row]
                if step.result.error in (None, Code.TOOL_ERROR):
                    world.take(AnsweredCall(step.by, step.call.name, step.call.arguments or {}, read_answer(step)))
                if isinstance(world, StatefulWorld):
                    await world.follow(diff_states(step.before, step.after))
                    world.pass_call()
        finally:
            await world.close()
        return rows

    def _make_row(
        self, task: Task, step: RecordedStep, prompt: list[dict[str, Any]], found: CollectedRows
    ) -> SimulatorRow | None:
        """The row of one call, or None if it is counted as left out."""
        answer = read_answer(step)
        truth = make_truth(answer.content, answer.failed, step.before, step.after, self.pack.state_schema)
        messages = [*prompt, {"role": "assistant", "content": write_reply(truth)}]
        tokens = sum(self._count(each["content"]) + TURN_TOKENS for each in messages)
        if tokens > self.config.cutoff:
            found.left_out[TOO_LONG] += 1
            found.too_long.append((tokens, truth.delta))
            return None
        if self.config.answerable and self.config.world.holds_state and self._find_unshown(step, prompt):
            found.left_out[UNSHOWN] += 1
            return None
        arguments = step.call.arguments or {}
        return SimulatorRow(self.pack.name, task.id, task.split, step.call.name, arguments, messages, truth, tokens)

    def _find_unshown(self, step: RecordedStep, prompt: list[dict[str, Any]]) -> list[str]:
        """List texts of the result that the state contains and the prompt does not show: no model could know them."""
        if self._texts[0] is not step.before:
            self._texts = (step.before, frozenset(list_texts(iterate_strings(step.before))))
        shown = prompt[-1]["content"].casefold()
        return [
            text
            for text in list_texts(iterate_plain_values(read_answer(step).content))
            if text in self._texts[1] and text not in shown and json.dumps(text, ensure_ascii=False)[1:-1] not in shown
        ]


def read_answer(step: RecordedStep) -> Answer:
    """The true answer to a call."""
    result = step.result
    return Answer(result.data if result.data is not None else result.content, failed=result.error is not None)


def list_texts(values: Iterable[Any]) -> list[str]:
    """The texts of three characters and more, in lower case."""
    return [each.casefold() for each in values if isinstance(each, str) and len(each) > 2]


def write_reply(truth: SimulatorTruth) -> str:
    """The reply that the simulated world reads as this answer."""
    content = truth.content
    if truth.failed and isinstance(content, dict) and list(content) == ["error"]:
        content = content["error"]
    answer = {
        "call": 1,
        "outcome": "error" if truth.failed else "result",
        "content": content,
        "changes": truth.changes,
    }
    return write_compact_json({"answers": [answer]})
