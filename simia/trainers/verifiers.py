"""A pack as an environment of verifiers (version 0.4): a taskset, and a harness that plays simia's episodes.

    class Taskset(PackTaskset):
        pack = "customer_service"

`simia pack export --to verifiers` writes a package with such classes. The harness plays an episode in this process: simia runs the tools,
the user and the rewards. The model's messages come from verifiers' interception server, so traces, token budgets and training work as usual
in verifiers. An aborted episode fails the rollout: it has no reward, and verifiers may retry it.

Imports verifiers and openai, which the user's environment must have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import openai
import verifiers.v1 as vf  # type: ignore[import-not-found,unused-ignore]
from pydantic import Field, model_validator

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.play.agent import AgentFailed
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings
from simia.envs.play.player import play
from simia.envs.task_selection import select_tasks
from simia.envs.text_episode import EnvironmentLease, await_on_portal, share_environment
from simia.errors import Code, UserError
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.trajectory import Trajectory

RECORD = "simia"
"""Key of `trace.info` with the end of the episode and its reward."""
OPENING = "The environment writes the first message."


class PackData(vf.TaskData):  # type: ignore[misc,unused-ignore]
    """The data of a task that a trace records. They do not contain the solution."""

    pack: str
    """The pack's name."""
    split: str
    """The task's split."""
    evaluation_only: bool
    """Whether the task is a benchmark's, and not for training."""
    stage: dict[str, Any]
    """Settings of simia's environment, without the pack."""
    calls: str
    """How the model writes calls."""
    store: str | None = None
    """Folder that keeps replies of the simulator and the user."""


class PackTasksetConfig(vf.TasksetConfig):  # type: ignore[misc,unused-ignore]
    """Arguments of the environment, under `--env.taskset.*`."""

    backend: Literal["executable", "simulated"] | None = None
    """What answers calls. executable: the pack's code in a sandbox. simulated: a model. null: executable if the pack has code, else simulated."""
    split: str | None = None
    """Only tasks of this split. null: all splits."""
    calls: Literal["native", "hermes", "codegym", "react"] = "native"
    """How the model writes calls. native: the endpoint's tool calls. Others: text formats."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Additional settings of simia's environment, such as `{"user": "llm", "llm": {"kind": "openai", "model": "gpt-5-mini"}}`."""
    store: Path | None = None
    """Folder that keeps replies of the simulator and the user."""

    @model_validator(mode="after")
    def check_settings(self) -> PackTasksetConfig:
        """Refuse unknown settings of simia's environment before anything starts."""
        try:
            parse_config(EnvironmentConfig, self.settings, where="settings")
        except UserError as error:
            raise ValueError(str(error)) from None
        return self


class PackTask(vf.Task[PackData]):  # type: ignore[misc,unused-ignore]
    """One task. Its reward is that of simia's episode, which the harness recorded."""

    @property
    def key(self) -> str:
        """The pack's name and the task's id."""
        return f"{self.data.pack}/{self.data.id}"

    @vf.reward  # type: ignore[untyped-decorator,unused-ignore]
    async def pack_reward(self, trace: vf.Trace) -> float:
        """The episode's reward by the pack's rules, rewards of single turns included."""
        return float(trace.info[RECORD]["reward"])

    @vf.metric  # type: ignore[untyped-decorator,unused-ignore]
    async def pack_parts(self, trace: vf.Trace) -> dict[str, float]:
        """The parts of the reward, and whether a limit ended the episode."""
        found = trace.info[RECORD]
        parts = {f"part_{name}": float(value) for name, value in found["parts"].items()}
        return {**parts, "truncated": float(found["end"] == "truncated")}


class PackTaskset(vf.Taskset[PackTask, PackTasksetConfig]):  # type: ignore[misc,unused-ignore]
    """The tasks of a pack."""

    pack: ClassVar[str | Path]
    """Name or folder of the pack."""

    def load(self) -> Iterator[PackTask]:
        """Yield the pack's tasks in order."""
        config, pack = self.config, Pack.load(self.pack)
        stage = make_stage(config, pack)
        chosen = parse_config(EnvironmentConfig, {"pack": str(pack.root), **stage}, where="the environment's settings")
        for task in select_tasks(pack, chosen):
            yield PackTask(
                PackData(
                    id=task.id,
                    name=task.id,
                    prompt=task.opening or task.instruction or OPENING,
                    pack=pack.name,
                    split=task.split,
                    evaluation_only=pack.evaluation or "evaluation" in task.tags,
                    stage=stage,
                    calls=config.calls,
                    store=str(config.store) if config.store else None,
                ),
                config.task,
            )


class PackHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc,unused-ignore]
    """Plays one episode of the pack with the model that verifiers serves."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    pack: ClassVar[str | Path]
    """Name or folder of the pack."""

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """Play the episode of the task and record its reward on the trace.

        Raises:
            RuntimeError: The episode was aborted, so it has no reward.
        """
        lease = await open_lease(self.pack, data.stage, data.store)
        model = ServedModel(ctx.model, endpoint, secret)
        try:
            played = await await_on_portal(play_task(lease, data.id, str(trace.id), model, data.calls))
        finally:
            await asyncio.to_thread(lease.close)
        reward, end = played.reward, played.end
        if end is None or reward is None or reward.total is None:
            code = reward.error if reward is not None and reward.error else end.code if end else None
            raise RuntimeError(f"the episode was aborted ({code}) and has no reward")
        trace.info[RECORD] = {"reward": reward.total, "parts": dict(reward.parts), "end": end.kind, "code": end.code}
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class PackEnvConfig(vf.EnvConfig):  # type: ignore[misc,unused-ignore]
    """The one agent, which needs no container: the pack's code runs in simia's sandbox."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model that is evaluated or trained."""


class PackEnv(vf.Env[PackEnvConfig]):  # type: ignore[misc,unused-ignore]
    """One agent plays one episode of the pack. The pack stays open while the environment serves."""

    _lease: EnvironmentLease | None = None

    async def start(self) -> None:
        """Open the pack once for all episodes."""
        taskset = self.taskset
        stage = make_stage(taskset.config, Pack.load(taskset.pack))
        self._lease = await open_lease(taskset.pack, stage, taskset.config.store)

    async def stop(self) -> None:
        """Close the pack."""
        if self._lease is not None:
            await asyncio.to_thread(self._lease.close)

    async def run(self, task: Any, agents: Any) -> None:
        """Let the agent play."""
        await agents.agent.run(task)


@dataclass
class ServedModel:
    """The model behind verifiers' interception server, as the engine of one episode's agent.

    Its own messages are sent back exactly as received. If one were written differently, the trace would split there, and a trainer would learn
    from both parts.
    """

    model: str
    """The model's name."""
    endpoint: str
    """Base URL of the interception server."""
    secret: str
    """Its key."""
    alias: str = "verifiers"
    """Name of the endpoint in the keys of replies."""
    said: list[dict[str, Any]] = field(default_factory=list)
    """The model's messages as received."""

    @property
    def backend(self) -> ServedModel:
        """The model that replies."""
        return self

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the reply; verifiers adds the run's sampling settings.

        Raises:
            AgentFailed: verifiers ended the rollout at a limit of its own; the episode is truncated and scored.
            LLMFault: The model could not be asked.
        """
        options: dict[str, Any] = {"messages": self.restore_wording(request.messages)}
        for name, value in (("stop", request.stop), ("tools", request.extra_body.get("tools"))):
            if value:
                options[name] = value
        try:
            async with openai.AsyncOpenAI(base_url=self.endpoint, api_key=self.secret, timeout=None) as client:
                made: Any = await client.chat.completions.create(model=self.model, **options)
        except openai.BadRequestError as error:
            if "rollout stopped" in str(error):
                raise AgentFailed(Code.MAX_TURNS, "a limit of verifiers", aborted=False) from None
            raise LLMFault(Code.BAD_REQUEST, str(error)[:500], retry=False, status=400) from None
        except openai.OpenAIError as error:
            raise LLMFault(Code.CONNECTION, str(error)[:500], retry=True) from None
        found = made.model_dump(exclude_none=True)
        message = found["choices"][0]["message"]
        self.said.append(message)
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        return Reply(text=message.get("content") or "", reasoning=reasoning, body=found)

    def restore_wording(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace the model's messages by the received ones, except where simia had to change the id of a call."""
        said = iter(self.said)
        found = []
        for row in messages:
            received = next(said, row) if row["role"] == "assistant" else row
            renamed = "tool_calls" in row and list_call_ids(row) != list_call_ids(received)
            found.append(row if renamed else received)
        return found


def list_call_ids(row: dict[str, Any]) -> list[Any]:
    """Return the ids of a message's calls."""
    return [call.get("id") for call in row.get("tool_calls") or []]


async def play_task(lease: EnvironmentLease, task: str, item: str, model: ServedModel, calls: str) -> Trajectory:
    """Play one episode of a task in the environment's own loop."""
    settings = LLMAgentSettings.model_validate({"calls": calls, "temperature": None, "max_tokens": None})
    environment = lease.environment
    chosen = next(each for each in environment.tasks if each.id == task)
    return await play(await environment.reset(chosen, seed=lease.seed), LLMAgent(model, settings, item=item))


def make_stage(config: PackTasksetConfig, pack: Pack) -> dict[str, Any]:
    """Return the settings of simia's environment, without the pack."""
    backend = config.backend or ("executable" if pack.executable else "simulated")
    return {"backend": backend, **({"split": config.split} if config.split else {}), **config.settings}


async def open_lease(pack: str | Path, stage: dict[str, Any], store: str | Path | None) -> EnvironmentLease:
    """Open a pack, or share one that is open with the same settings. Raises `UserError`."""
    kept = Path(store) if store else None
    return await asyncio.to_thread(share_environment, {"pack": str(pack), **stage}, store=kept)
