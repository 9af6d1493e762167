"""GRPO in TRL by its `environment_factory`: TRL's own loop calls the pack's tools, as typed methods.

    environment = event_loop.run(open_environment("office", user="none"))
    trainer = GRPOTrainer(
        model, reward_funcs=[tools_reward], train_dataset=Dataset.from_list(tool_rows(environment)),
        environment_factory=environment_factory(environment), args=GRPOConfig(...),
    )

This is simpler than `rollout_func` for TRL's users, but has limits. TRL supports no user who answers, runs the calls of a batch one after
another (so a simulated world waits for one model reply at a time), parses calls itself, and lists tools alphabetically. TRL makes each
tool's schema from a Python signature and a docstring, so both are generated here from the JSON Schema; constraints that a signature cannot
express are in the argument's description.
"""

from __future__ import annotations

import inspect
import json
import keyword
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union

from simia import event_loop
from simia.envs.environment import Environment, Episode
from simia.envs.remote.remote_pack import RemotePack
from simia.envs.several_packs import CombinedPack
from simia.errors import Code, UserError
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from simia.trainers.kept_episodes import EpisodeKeeper
from simia.trainers.ranks import log_aborted, run_on_all_ranks
from simia.trainers.time_limits import WORLD_SECONDS, open_in_time, run_in_time
from simia.trainers.trl.rollout import keep_batch, name_step, task_rows
from simia.trajectory import Message, ToolCall, Trajectory

PLAIN: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
TAKEN = ("reset", "get_reward")  # method names with a meaning for TRL
SECTION = re.compile(r"\b(Args|Returns|Raises|choices):", re.IGNORECASE)  # headings of TRL's docstring parser
ENDED = "The task has ended; nothing more is run."


def tool_rows(environment: Environment, split: str | None = None) -> list[dict[str, Any]]:
    """Make rows for the trainer's data set: the policy as system text, an empty user turn that `reset` fills, and the task's id."""
    policy = environment.pack.policy
    prompt = [{"role": "system", "content": policy}] if policy else []
    prompt.append({"role": "user", "content": ""})
    return [{"prompt": prompt, "task_id": row["prompt"]} for row in task_rows(environment, split)]


def tools_reward(
    *, completions: Sequence[Any], environments: Sequence[TrlTools], trainer_state: Any = None, **_: Any
) -> list[float | None]:
    """Return the episodes' rewards: the factory's reward function. Passes each policy's last message to its episode and ends it.

    All episodes are judged at once. The reward of an aborted episode is None: its advantage is 0, and with `beta` 0 (TRL's default) it
    trains nothing. Raises `UserError`, on all ranks, if no episode of a training step could be scored or the budget ran out; for an
    evaluation that is only logged.
    """

    said = list(zip(environments, completions, strict=True))

    def finish() -> list[Episode]:
        episodes = event_loop.run_together(tools._finish(completion) for tools, completion in said)
        environments[0]._keep(episodes)
        return episodes

    episodes = run_on_all_ranks(finish)
    step = trainer_state.global_step + 1 if trainer_state is not None else 0
    log_aborted(episodes, step, learns=environments[0]._learns())
    return [episode.reward.total if episode.reward else None for episode in episodes]


def environment_factory(
    environment: Environment,
    *,
    seed: int = 0,
    trainer: Callable[[], Any] | None = None,
    name: str = "",
    evaluation: tuple[Environment, int] | None = None,
    on_trajectory: Callable[[Trajectory], None] | None = None,
    world_seconds: float = WORLD_SECONDS,
    keeper: EpisodeKeeper | None = None,
) -> Callable[[], TrlTools]:
    """Make the `environment_factory` of GRPOTrainer; its instances share the opened environment and its one pack.

    Episodes of one task in one batch are a group. `trainer` returns the GRPOTrainer once it exists: groups are then named by its step, so
    that a resumed run finds its stored replies. Without `trainer`, batches are counted from 1; a restart with the same store then needs
    another `name`, a prefix of the groups' names, or it would get the replies of the first batches again. `evaluation`: another environment
    to evaluate in, with its seed; it needs `trainer` and must have the same tools. An episode whose environment takes longer than
    `world_seconds` for an answer is aborted. `keeper` writes the episodes to a run and needs `trainer`. Raises `UserError` for a tool that
    cannot become a Python method, and as `check_tool_methods` does.
    """
    check_tool_methods(environment.pack, environment.tasks)
    made: list[TrlTools] = []
    batches = Counter[str]()
    batch = ""

    def name_batch() -> str:
        step = "" if trainer is None else name_step(trainer())
        batches[step] += 1
        if not step:
            return f"{name}{batches[step]}"
        return f"{name}{step}" if batches[step] == 1 else f"{name}{step}.{batches[step]}"  # an evaluation has several

    class PackTools(TrlTools):
        def _choose_environment(self) -> tuple[Environment, int]:
            if evaluation is not None and not self._learns():
                return evaluation
            return super()._choose_environment()

        def _learns(self) -> bool:
            return trainer is None or bool(trainer().model.training)

        def _name_episode(self, task: str) -> tuple[str, str]:
            nonlocal batch
            if self is made[0]:  # TRL resets its instances in order, so the first one begins a batch
                batch = name_batch()
                if trainer is not None:
                    environment.note_training_step(trainer().state.global_step)
            rank = trainer().accelerator.process_index if trainer is not None else os.environ.get("RANK", "0")
            return f"{batch}/{task}", f"{rank}.{made.index(self) + 1}"  # ranks may share one store of replies

        def _keep(self, episodes: Sequence[Episode]) -> None:
            if trainer is not None:
                keep_batch(keeper, trainer(), episodes)

    PackTools.__name__ = PackTools.__qualname__ = re.sub(r"\W", "_", environment.pack.name)
    for tool in environment.pack.tools:
        setattr(PackTools, tool.name, make_method(tool))

    def factory() -> TrlTools:
        made.append(PackTools(environment, seed, on_trajectory))
        made[-1]._world_seconds = world_seconds
        return made[-1]

    return factory


def check_tool_methods(pack: Pack, tasks: Sequence[Task]) -> None:
    """Raise `UserError` for packs that TRL's own loop cannot play: several packs, and tasks with only some tools or a user who answers."""
    otherwise = "; train with rollout_func"
    if isinstance(pack, CombinedPack):
        raise UserError(f"TRL's environment_factory lists the tools of one pack, but these are several{otherwise}")
    if isinstance(pack, RemotePack):
        raise UserError(
            f"TRL's environment_factory must know whether a user answers, which a server does not tell{otherwise}"
        )
    for task in tasks:
        if task.needs_user:
            raise UserError(f"task {task.id}: TRL's environment_factory has no user who answers{otherwise}")
        if task.tools is not None:
            raise UserError(f"task {task.id}: TRL's environment_factory lists all tools of the pack{otherwise}")


class TrlTools:
    """One conversation at a time; a subclass has the pack's tools as methods. TRL treats every public method as a tool."""

    def __init__(
        self, environment: Environment, seed: int = 0, on_trajectory: Callable[[Trajectory], None] | None = None
    ) -> None:
        self._environment, self._seed, self._on_trajectory = environment, seed, on_trajectory
        self._episode: Episode | None = None
        self._calls = 0
        self._world_seconds = WORLD_SECONDS

    def reset(self, task_id: str, **_: Any) -> str:
        """Begin an episode of that task. Returns the user's first message, which TRL adds to the prompt's last message."""
        before, self._calls = self._episode, 0
        if before is not None:
            event_loop.run(before.close())
        group, player = self._name_episode(task_id)
        environment, seed = self._choose_environment()
        task, seconds = environment.pack.task(task_id), self._world_seconds
        opened = open_in_time(environment, task, seconds, seed=seed, group=group, name=f"{group}/{player}")
        self._episode = event_loop.run(opened)
        return "\n\n".join(message.text for message in self._episode.view.messages if message.role == "user")

    def _choose_environment(self) -> tuple[Environment, int]:
        """Return the environment to play in, with the seed of its worlds."""
        return self._environment, self._seed

    def _learns(self) -> bool:
        """Whether the episodes are trained on; False in an evaluation."""
        return True

    def _name_episode(self, task: str) -> tuple[str, str]:
        """Return the names of the episode's group, and of the episode in it."""
        raise NotImplementedError

    def _keep(self, episodes: Sequence[Episode]) -> None:
        """Write a batch of finished episodes to the training's run."""

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        episode = self._running()
        if episode.end is not None:
            return ENDED
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name=name, arguments=arguments)
        taken = episode.step(Message(role="assistant", calls=[call]))
        step = event_loop.run(run_in_time(episode, taken, self._world_seconds))
        if step is None:
            return ENDED
        return "\n".join(message.text for message in step.messages if message.role == "tool")

    async def _finish(self, completion: Sequence[dict[str, Any]]) -> Episode:
        episode, last = self._running(), completion[-1] if completion else {"role": "tool"}
        if episode.end is None:
            if last["role"] == "assistant" and not last.get("tool_calls"):
                taken = episode.step(Message(role="assistant", content=str(last.get("content") or "")))
                await run_in_time(episode, taken, self._world_seconds)
                # The user would answer, but TRL has no turn for a user.
                await run_in_time(episode, episode.stop(Code.MAX_TURNS), self._world_seconds)
            else:
                await run_in_time(episode, episode.stop(Code.MAX_TOKENS), self._world_seconds)
        if self._on_trajectory is not None:
            self._on_trajectory(episode.trajectory)
        return episode

    def _running(self) -> Episode:
        if self._episode is None:
            raise UserError("no episode yet: TRL resets an environment before its tools are called")
        return self._episode


def make_method(tool: ToolSpec) -> Callable[..., str]:
    """Make a method whose signature and docstring give TRL the tool's schema. Raises `UserError` if none can."""
    if tool.name in TAKEN or tool.name.startswith("_"):
        raise UserError(f"tool {tool.name!r}: TRL's environment_factory uses that name itself; train with rollout_func")
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    hints, lines = dict[str, Any](), [escape_sections(tool.description, keep=True), "", "Args:"]
    for name, schema in properties.items():
        if name == "self" or not name.isidentifier() or keyword.iskeyword(name):
            raise UserError(
                f"tool {tool.name!r}: argument {name!r} cannot be a Python parameter; train with rollout_func"
            )
        hints[name], told = make_type_hint(schema)
        default = inspect.Parameter.empty if name in required else None
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hints[name]))
        lines.append(f"    {name}: {describe_argument(name, schema, told)}")

    def method(self: TrlTools, /, **arguments: Any) -> str:
        return self._call(tool.name, arguments)

    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join(lines)
    method.__annotations__ = hints
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method


def describe_argument(name: str, schema: Any, told: dict[str, Any]) -> str:
    """Describe an argument on one line, never empty, with the parts of its schema that its type hint lacks."""
    schema = schema if isinstance(schema, dict) else {}
    words = escape_sections(schema.get("description") or name.replace("_", " "))
    left = {k: v for k, v in schema.items() if k not in ("description", "title") and told.get(k) != v}
    if not left:
        return words
    return f"{words.rstrip('.')}. JSON Schema: {escape_sections(json.dumps(left, ensure_ascii=False))}"


def escape_sections(text: str, *, keep: bool = False) -> str:
    """Escape words that TRL's docstring parser would read as sections. `keep`: keep line breaks."""
    return SECTION.sub(r"\1 :", text if keep else " ".join(text.split()))


def make_type_hint(schema: Any) -> tuple[Any, Any]:
    """Return a type hint, and the JSON Schema that TRL makes of it."""
    if not isinstance(schema, dict):
        return Any, {}
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values:
        if all(isinstance(value, str | int | bool | None) for value in values):
            names = list(dict.fromkeys(next(n for n, t in PLAIN.items() if type(value) is t) for value in values))
            return Literal[tuple(values)], {"type": names[0] if len(names) == 1 else names, "enum": values}
        return Any, {}
    kind = schema.get("type")
    if isinstance(kind, str) and kind in PLAIN:
        return PLAIN[kind], {"type": kind}
    container: Any = {"array": list, "object": dict}.get(str(kind))
    if container is not None:
        of = "items" if container is list else "additionalProperties"
        inner, told = make_type_hint(schema.get(of))
        if inner is Any:
            return container, {"type": kind}
        return container[inner] if container is list else container[str, inner], {"type": kind, of: told}
    if isinstance(kind, list) and kind and all(isinstance(one, str) and one in PLAIN for one in kind):
        rest = sorted(one for one in kind if one != "null")
        told = {"type": rest[0] if len(rest) == 1 else rest} if rest else {"type": "null"}
        union: Any = Union
        return union[tuple(PLAIN[one] for one in kind)], {**told, "nullable": True} if "null" in kind and rest else told
    return Any, {}
