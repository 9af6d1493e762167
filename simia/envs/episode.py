"""Episode: one conversation in an environment, step by step, and its trajectory.

Messages are only appended: `step` returns those that the action caused and never changes an earlier one. An episode holds no token ids
of its own. It has one of three endings: terminated; truncated by a limit, and still scored; or aborted by an infrastructure failure. `step`
returns an abort, it does not raise it, and the reward is then None.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from simia.envs.episode_limits import EpisodeLimits, combine_limits
from simia.envs.episode_step import Sample, Step, announce_tools, drop_announcement, make_observation, seen_by_agent
from simia.envs.perturbation.perturber import Perturber
from simia.envs.rewards.composed_scorer import ComposedScorer
from simia.envs.rewards.goal_turns import ANSWERS, list_goal_starts
from simia.envs.state_tracking import StateTracker
from simia.envs.users import OPENS_GOAL, EpisodeView, LLMUser, NoUser, User, UserStop
from simia.envs.worlds.arguments import make_failure, make_recordable, refuse_call, refuse_calls_over_limit
from simia.envs.worlds.world import Backend, ToolResult, World
from simia.errors import Aborted, Code, Issue, require_type
from simia.pack import Pack
from simia.reward import Reward
from simia.scorer import Scorer
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import End, Message, Perturbation, Provenance, ToolCall, Trajectory
from simia.version import __version__

MOST_USER_STEPS = 40  # times that a user may call before saying something


class EpisodeContext(Protocol):
    """The part of an environment that its episodes read. All episodes of the environment share it."""

    pack: Pack
    public_tools: dict[str, ToolSpec]
    public_user_tools: list[ToolSpec]
    backend: Backend
    backend_name: str
    limits: EpisodeLimits
    scorer: Scorer | None


@dataclass(slots=True)
class Episode:
    """One conversation. `messages` grows; `end` is None while it runs. Steps must not overlap."""

    environment: EpisodeContext
    task: Task
    world: World | None
    """The world in which the calls run; None after the episode was closed, or if it could not be opened. Use `step` to act in it and `fork` to
    copy it."""
    user: User
    seed: int = 0
    group: str | None = None
    messages: list[Message] = field(default_factory=list)
    end: End | None = None
    reward: Reward | None = None
    issues: list[Issue] = field(default_factory=list)
    evidence: dict[str, Any] | None = None
    samples: list[Sample | None] = field(default_factory=list)
    perturber: Perturber | None = None
    """Makes the planned perturbations; None: there are none."""
    _turns: int = 0
    _errors: int = 0
    _calls: int = 0
    _calls_in_turn: int = 0
    _user_turns: int = 0
    _turn_changes: list[list[dict[str, Any]] | None] = field(default_factory=list)
    """Changes of the state at the end of each goal's turn, for tasks with goals."""
    _answers: list[int] = field(default_factory=list)
    """Indices of the user's messages that open no goal."""
    _stepping: bool = False
    _tracker: StateTracker = field(default_factory=StateTracker)
    _own_loss: str = ""
    """Why the final state cannot be read, if the episode's own calls caused that; empty otherwise."""
    _limits: EpisodeLimits | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def aborted(cls, environment: EpisodeContext, task: Task, seed: int, error: Aborted) -> Episode:
        end = End(kind="aborted", code=error.code)
        issue = Issue(code=error.code, where="reset", detail=error.detail)
        reward = Reward(error=error.code, rationale=error.detail)
        # The task's text stands in for the user's first message, so that trainers always find a prompt.
        opening = [Message(role="user", content=task.opening or task.instruction)]
        return cls(
            environment, task, None, NoUser(task), seed=seed, messages=opening, end=end, issues=[issue], reward=reward
        )

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools that the agent sees now."""
        return self._list_tools(self._user_turns)

    def _list_tools(self, turn: int) -> list[ToolSpec]:
        tools = list(self.world.tools["agent"]) if self.world else self.environment.pack.tools
        if self.task.tools is None and not self.task.reveals:
            return tools
        return [tool for tool in tools if self.task.shows_tool(tool.name, turn)]

    @property
    def perturbations(self) -> list[Perturbation]:
        """The planned disturbances that were made so far."""
        return copy.deepcopy(self.perturber.records) if self.perturber is not None else []

    @property
    def limits(self) -> EpisodeLimits:
        """The limits of this episode: the lowest of the environment's, the pack's and the task's."""
        if self._limits is None:
            self._limits = combine_limits(self.environment.limits, self.environment.pack.limits, self.task.limits)
        return self._limits

    @property
    def view(self) -> EpisodeView:
        """The episode as the agent sees it."""
        if not self.task.reveals:
            return EpisodeView(self.environment.pack.policy, seen_by_agent(self.messages), self.tools)
        tools, first = self.tools, {tool.name for tool in self._list_tools(1)}
        shown, revealed = ([t for t in tools if (t.name in first) is at_start] for at_start in (True, False))
        return EpisodeView(self.environment.pack.policy, seen_by_agent(self.messages), shown, revealed)

    @property
    def user_view(self) -> EpisodeView:
        """The episode as the user sees it: messages of both, the user's own calls and their results; no call and no tool of the agent."""
        seen = tuple(
            drop_announcement(m)
            for m in self.messages
            if (m.role == "user")
            or (m.role == "assistant" and not m.calls)
            or (m.visible_to and "user" in m.visible_to)
        )
        return EpisodeView(None, seen, self.world.tools.get("user", ()) if self.world else ())

    async def begin(self) -> None:
        """Get the user's first message."""
        with self._watch("reset"):
            await self._hear_user()
            await self._tracker.note(self.environment.scorer, self.task, self.world)
        if self.end is not None:
            await self._finish()

    async def step(self, action: Message, sample: Sample | None = None) -> Step:
        """Take one message of the agent: text, or any number of calls, run in order. The user does not see text next to calls.

        A message with neither text nor calls is allowed, since models send such replies. Raises `ValueError` for a message that is
        not the assistant's, an episode that has ended, or a step while another one is in progress.
        """
        require_type("action", action, Message)
        if self._stepping:
            raise ValueError("a step of this episode is still in progress: await it first")
        if self.end is not None:
            raise ValueError(f"the episode has ended ({self.end.kind}): reset a new one")
        if action.role != "assistant":
            raise ValueError(f"an action is a message of the assistant, not of the {action.role}")
        self._stepping = True
        try:
            return await self._take(make_recordable(action), sample)
        finally:
            self._stepping = False

    async def _take(self, action: Message, sample: Sample | None) -> Step:
        start = len(self.messages) + 1
        self.messages.append(action)
        self.samples.append(sample)
        self._turns += 1
        limits = self.limits
        if self.perturber is not None:
            self.perturber.hear_agent(action)
        with self._watch(f"messages[{start - 1}]"):
            if action.calls:
                refused, is_over = refuse_calls_over_limit(
                    action.calls, limits.calls_per_message, limits.calls, self._calls - self._count_extra_calls()
                )
                if allowed := action.calls[: len(action.calls) - len(refused)]:
                    await self._run(allowed, limits.calls_per_turn)
                self.messages += map(make_observation, refused, action.calls[len(allowed) :])
                if self.end is None and self._errors >= limits.errors:
                    self.end = End(kind="truncated", code=Code.MAX_ERRORS)
                if self.end is None and is_over:
                    self.end = End(kind="truncated", code=Code.MAX_CALLS)
            else:
                await self._hear_user()
            await self._tracker.note(self.environment.scorer, self.task, self.world)
        if self.end is None and self._turns >= limits.turns:
            self.end = End(kind="truncated", code=Code.MAX_TURNS)
        if self.end is not None:
            await self._finish()
        return Step(seen_by_agent(self.messages[start:]), self.end, self.reward)

    async def stop(
        self,
        code: Code,
        *,
        aborted: bool = False,
        detail: str = "",
        message: Message | None = None,
        sample: Sample | None = None,
    ) -> Step:
        """End the episode from outside: at the agent's token limit (truncated and scored), or when its model fails (aborted).
        `message` is the incomplete last turn of the agent: it is recorded, and its calls are not run."""
        if self.end is None:
            if message is not None:
                self.messages.append(make_recordable(message))
                self.samples.append(sample)
            self.end = End(kind="aborted" if aborted else "truncated", code=code)
            if detail:
                self.issues.append(Issue(code=code, where=f"messages[{len(self.messages)}]", detail=detail))
            await self._finish()
        return Step((), self.end, self.reward)

    async def score(self) -> Reward:
        """Compute the reward of the episode as if it ended now. If infrastructure fails, the value is None and nothing is raised."""
        if self.reward is not None:
            return self.reward
        trajectory = await self._with_evidence()
        scorer = self.environment.scorer or ComposedScorer(self.environment.pack)
        if not isinstance(scorer, ComposedScorer):
            return await scorer.score(trajectory, self.task)
        lost = self._own_loss and scorer.unjudged
        reward = Reward(error=Code.UNSCORED) if lost else await scorer.score(trajectory, self.task, self._tracker.final)
        if self._own_loss and reward.value is None and reward.error is Code.UNSCORED:
            return Reward(value=0.0, rationale=f"the episode made its final state unreadable: {self._own_loss}")
        return reward

    async def fork(self) -> Episode:
        """Copy the running episode; both continue independently."""
        if self.world is None or self.end is not None:
            raise ValueError("only a running episode can be forked")
        snapshot = await self.world.snapshot()
        world = await self.environment.backend.open(self.task, seed=self.seed, group=self.group, snapshot=snapshot)
        return Episode(
            self.environment, self.task, world, self.user.fork(), self.seed, self.group, list(self.messages),
            issues=list(self.issues), samples=list(self.samples), _turns=self._turns, _errors=self._errors,
            _calls=self._calls, _calls_in_turn=self._calls_in_turn, _user_turns=self._user_turns,
            _turn_changes=list(self._turn_changes), _answers=list(self._answers), _tracker=self._tracker.fork(),
            perturber=self.perturber.fork() if self.perturber is not None else None,
        )  # fmt: skip

    async def close(self) -> None:
        """Close the world. An episode that is still running gets no end."""
        world, self.world = self.world, None
        if world is not None:
            await world.close()

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far as a trajectory."""
        environment, pack = self.environment, self.environment.pack
        extra: dict[str, Any] = {"seed": self.seed, "backend": environment.backend_name}
        if self.group is not None:
            extra["group"] = self.group
        if self.task.scenario is not None:
            extra["scenario"] = f"{pack.name}/{self.task.scenario}"
        if pack.evaluation or "evaluation" in self.task.tags:
            extra["evaluation"] = True
        if isinstance(self.user, LLMUser):
            extra["user_model"] = True
        if self.perturber is not None and self.end is not None and (missed := self.perturber.missed):
            extra["missed_events"] = [each.model_dump(exclude_none=True) for each in missed]
        return Trajectory(
            pack=pack.name,
            task_id=self.task.id,
            split=self.task.split,
            system=pack.policy,
            tools=[environment.public_tools.get(tool.name, tool) for tool in self._list_tools(1)],
            user_tools=environment.public_user_tools,
            messages=list(self.messages),
            end=self.end or End(kind="truncated"),
            reward=self.reward,
            evidence=self.evidence,
            perturbations=self.perturbations,
            issues=list(self.issues),
            provenance=Provenance(stages=["rollout"], simia=__version__, licence=pack.licence),
            extra=extra,
        )

    # -- within a step --------------------------------------------------------------------------------------------

    async def _run(self, calls: list[ToolCall], most: int | None) -> None:
        """Run the calls in order. Calls of hidden tools, and calls beyond `most` in this turn, are refused."""
        assert self.world is not None
        self._calls += len(calls)
        if most is None and self.task.tools is None and not self.task.reveals:
            results = await self._call_world(calls, len(self.messages))
        else:
            results = await self._run_restricted(calls, most)
        for result, call in zip(results, calls, strict=True):
            self._errors = self._errors + 1 if result.error else 0
            self._note(result)
            self.messages.append(make_observation(result, call))
            if result.ends and self.end is None:
                limit = result.error is Code.RESOURCE_LIMIT
                self.end = End(kind="terminated", code=Code.RESOURCE_LIMIT if limit else Code.FINISHED)

    async def _run_restricted(self, calls: list[ToolCall], most: int | None) -> list[ToolResult]:
        assert self.world is not None
        visible, turn = {tool.name: tool for tool in self.tools}, self._user_turns
        hidden = {tool.name for tool in self.world.tools["agent"] if not self.task.runs_tool(tool.name, turn)}
        found: list[ToolResult] = []
        for call in calls:
            self._calls_in_turn += 1
            if found and found[-1].ends:
                found.append(replace(make_failure(call, Code.FINISHED, "the episode has ended"), ends=True))
            elif most is not None and self._calls_in_turn - self._count_extra_calls() > most:
                words = f"the limit of {most} calls before the next answer to the user is reached"
                found.append(make_failure(call, Code.MAX_CALLS, words))
            elif call.name in hidden and (refused := refuse_call(call, visible)) is not None:
                found.append(refused)
            else:
                found += await self._call_world([call], len(self.messages) + len(found))
        return found

    def _count_extra_calls(self) -> int:
        """Return the number of calls that perturbations cost the agent so far; limits of calls leave them out."""
        return self.perturber.extra_calls if self.perturber is not None else 0

    async def _call_world(self, calls: list[ToolCall], at: int) -> list[ToolResult]:
        """Run the agent's calls, with the planned perturbations. `at`: index of the message with the first result."""
        assert self.world is not None
        return await (self.world.call(calls) if self.perturber is None else self.perturber.call(self.world, calls, at))

    async def _hear_user(self) -> None:
        """Append the user's answer and, before it, any calls of the user's own tools."""
        assert self.world is not None
        if self.task.goals and self._user_turns:
            self._turn_changes.append(await self.world.changes())
        self._calls_in_turn = self._count_extra_calls()
        for _ in range(MOST_USER_STEPS):
            view, perturber = self.user_view, self.perturber
            word = await (
                self.user.reply(view) if perturber is None else perturber.reply(self.user, view, len(self.messages))
            )
            if isinstance(word, UserStop):
                if word.code is Code.USER_FAILED:  # not the agent's fault, so the episode is not scored
                    raise Aborted(word.code, word.words)
                if word.words:
                    self._answers.append(len(self.messages))
                    self.messages.append(Message(role="user", content=word.words))
                self.end = End(kind="terminated", code=word.code)
                return
            if not word.calls:
                if word.extra.get(OPENS_GOAL) is False:
                    word = word.model_copy(update={"extra": {k: v for k, v in word.extra.items() if k != OPENS_GOAL}})
                    if self._user_turns:  # the turn of the goal goes on
                        self._answers.append(len(self.messages))
                        self._turn_changes = self._turn_changes[:-1]
                self._user_turns += 1
                self.messages.append(self._announce_tools(word))
                return
            self.messages.append(word.model_copy(update={"visible_to": ["user"]}))
            for result, call in zip(await self.world.call(word.calls, by="user"), word.calls, strict=True):
                self._note(result)
                self.messages.append(make_observation(result, call, ["user"]))
        raise Aborted(Code.USER_FAILED, f"the user called tools {MOST_USER_STEPS} times and said nothing")

    def _announce_tools(self, word: Message) -> Message:
        """Return the user's message with the definitions of the tools that become visible with it. The agent's prompt listed the
        tools at the start and is not changed, so the agent learns of further tools here."""
        names = [name for reveal in self.task.reveals if reveal.turn == self._user_turns for name in reveal.tools]
        if not names:
            return word
        return announce_tools(word, [tool for tool in self.tools if tool.name in names])

    def _note(self, result: ToolResult) -> None:
        if result.detail:
            code = result.error or Code.CONTRADICTION  # the detail of a success is a contradiction
            self.issues.append(Issue(code=code, where=f"messages[{len(self.messages)}]", detail=result.detail))

    @contextlib.contextmanager
    def _watch(self, where: str) -> Iterator[None]:
        """Turn an infrastructure failure into the end of the episode, so that a step never raises it."""
        try:
            yield
        except Aborted as error:
            self.end = End(kind="truncated" if error.facts.get("own") else "aborted", code=error.code)
            self.issues.append(Issue(code=error.code, where=where, detail=error.detail))

    async def _finish(self) -> None:
        """Collect evidence and the reward, and close the world."""
        assert self.end is not None
        if self.end.kind == "aborted":
            self.reward = Reward(error=self.end.code, rationale=self.issues[-1].detail if self.issues else "")
        else:
            self.reward = await self.score()
        await self.close()

    async def _judge_turns(self) -> dict[str, Any]:
        """Collect the evidence of a task with goals. The last turn ends now."""
        assert self.world is not None
        turns = self._turn_changes
        if len(turns) < len(list_goal_starts(self.messages, self._answers)):
            turns = [*turns, await self.world.changes()]
        evidence = await self.world.evidence(turns)
        return {**evidence, ANSWERS: list(self._answers)} if self._answers else evidence

    async def _with_evidence(self) -> Trajectory:
        if self.world is not None:
            try:
                found = await (self._judge_turns() if self.task.goals else self.world.evidence())
                self.evidence = await self._tracker.finish(self.environment.scorer, self.world, found, self.messages)
            except Aborted as error:
                self.issues.append(Issue(code=error.code, where="score", detail=error.detail))
                self.evidence = None
                self._own_loss = (error.detail or error.code.meaning) if error.facts.get("own") else ""
        return self.trajectory
