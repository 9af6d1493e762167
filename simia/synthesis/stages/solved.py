"""Stage `solved`: solvers play each turn, a selector keeps the best solution or none, and essential calls are derived (EnvFactory §3.4).

A turn starts with the state and the messages after the selected solutions of the earlier turns. The first turn without a solution ends the
conversation; the turns before it are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.envs.environment import Environment
from simia.envs.play.llm_agent import LLMAgent
from simia.envs.rewards import score_trajectory
from simia.envs.worlds.executable import ExecutableBackend
from simia.reward_spec import Match, RewardSpec
from simia.state import Change
from simia.statistics import compute_pass_at_k_interval, estimate_pass_at_k
from simia.synthesis.agent_model import ModelOfStage
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.conversations.conversation import (
    ComposedEnvironment,
    ConversationPlan,
    ConversationQueries,
    SolvedConversation,
    SolvedTurn,
    UserTurn,
)
from simia.synthesis.conversations.conversation_settings import SolvingSettings
from simia.synthesis.conversations.conversation_tasks import SOLVER
from simia.synthesis.conversations.essential_calls import (
    PADDING,
    EssentialCall,
    find_policies,
    link_values,
    make_parts,
    pick_essential,
    replay_essential,
)
from simia.synthesis.conversations.solution_selection import Selection, ask_selection
from simia.synthesis.conversations.turn_playing import (
    SolverTurn,
    describe_changes,
    make_turn_task,
    number_calls,
    play_turn,
)
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario_prompts import list_prompt_values
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.task import CallLimits, Goal
from simia.trajectory import Message

MOST_MESSAGES = 400  # most messages of an agent in a conversation; the task's own limit is lower


class Solved:
    """Solve the turns of each conversation. Key: that of the plan."""

    name = "solved"

    def __init__(self, settings: SolvingSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        plans, compositions = outputs.of("plans"), outputs.of("compositions")
        return [
            StageInput(key, {"plan": plans[key], "queries": made, "composed": compositions[plans[key]["composition"]]})
            for key, made in outputs.of("queries").items()
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        built = ComposedEnvironment.model_validate(given.value["composed"]).built
        async with context.execution() as folder:
            write_environment(folder / "pack", built)
            environment = await open_built(folder / "pack", user="none", episode={"turns": MOST_MESSAGES})
            try:
                solver = ConversationSolver(given, context, built, environment, self._settings)
                solved = await solver.solve()
            finally:
                await environment.close()
        counts, ks = [(turn.solvers, turn.passed) for turn in solved.turns], range(1, self._settings.solvers + 1)
        context.note(
            turns=len(solved.turns),
            planned=len(solver.turns),
            unsolved=solved.unsolved,
            passed=[passed for _, passed in counts],
            pass_at_k={f"pass@{k}": [round(estimate_pass_at_k(n, c, k), 6) for n, c in counts] for k in ks},
            intervals={f"pass@{k}": [compute_pass_at_k_interval(n, c, k) for n, c in counts] for k in ks},
        )
        if not solved.turns:
            raise Refused(Reason.TURN_UNSOLVED, solved.unsolved)
        return dump(solved)


class ConversationSolver:
    """The work on one conversation."""

    def __init__(
        self,
        given: StageInput,
        context: StageContext,
        built: BuiltEnvironment,
        environment: Environment,
        settings: SolvingSettings,
    ) -> None:
        assert isinstance(environment.backend, ExecutableBackend)
        self._context, self._built, self._environment, self._settings = context, built, environment, settings
        self._backend = environment.backend
        self._plan = ConversationPlan.model_validate(given.value["plan"])
        self.turns = ConversationQueries.model_validate(given.value["queries"]).turns
        self._writing = sorted(name for name, tool in built.tools.items() if tool.writes)
        self._values = list_prompt_values(built, self._plan.state)
        self._essential: list[list[EssentialCall]] = []
        self._messages: list[Message] = []
        self._changes: list[Change] = []

    async def solve(self) -> SolvedConversation:
        """Solve the turns in order, up to the first that has no solution."""
        found = SolvedConversation(turns=[])
        for number, turn in enumerate(self.turns, start=1):
            solved = await self._solve_turn(number, turn)
            if isinstance(solved, str):
                found.unsolved = f"turn {number}: {solved}"
                break
            found.turns.append(solved)
        return found

    async def _solve_turn(self, number: int, turn: UserTurn) -> SolvedTurn | str:
        """The turn with its solution, or why it has none."""
        plays = await self._play(number)
        usable = {play.key: play for play in reversed(plays) if not play.fault}
        solutions = [play for play in plays if usable.get(play.key) is play]
        if not solutions:
            return "; ".join(dict.fromkeys(play.fault for play in plays))
        selection = await self._select(number, turn, solutions)
        if selection.best is None:
            return f"the selector keeps none: {selection.why}"
        best = solutions[selection.best - 1]
        derived = await self._derive_goal(turn, best, selection)
        if isinstance(derived, str):
            return derived
        goal, expected = derived
        passed = [self._satisfies(play, goal, expected) for play in plays]
        if not passed[plays.index(best)]:
            return "the essential calls alone do not leave the state that the whole solution leaves"
        messages = number_calls(best.messages, sum(len(message.calls) for message in self._messages))
        self._messages += messages
        self._changes = best.changes
        rows = [message.model_dump(mode="json", exclude_defaults=True) for message in messages]
        return SolvedTurn(goal=goal, messages=rows, solvers=len(plays), passed=sum(passed))

    async def _play(self, number: int) -> list[SolverTurn]:
        """Let all solvers play a turn."""
        before = sum(message.role == "assistant" for message in self._messages)
        queries = [turn.query for turn in self.turns[:number]]
        task = make_turn_task(f"turn{number}", self._plan.state, queries)
        task = task.model_copy(update={"limits": CallLimits(turns=before + self._settings.steps)})
        models = [ModelOfStage(self._context, SOLVER, SOLVER) for _ in range(self._settings.solvers)]
        agents = [
            LLMAgent(model, self._settings.agent, item=f"turn{number}-solver{n}") for n, model in enumerate(models, 1)
        ]
        try:
            return await ask_together(*(play_turn(self._environment, task, self._messages, agent) for agent in agents))
        finally:
            for model in models:
                if model.fault is not None:
                    raise model.fault

    async def _select(self, number: int, turn: UserTurn, solutions: Sequence[SolverTurn]) -> Selection:
        values = {
            **self._values,
            "initial": self._plan.state,
            "persona": self._plan.persona,
            "before": [each.query for each in self.turns[: number - 1]],
            "earlier": describe_changes(self._changes),
            "query": turn.query,
            "subgoals": turn.subgoals,
        }
        return await ask_selection(self._context, self._built, solutions, values, f"turn{number}-select")

    async def _derive_goal(
        self, turn: UserTurn, best: SolverTurn, selection: Selection
    ) -> tuple[Goal, list[Change]] | str:
        """The goal of a turn and the changes after it, or why there is none."""
        essential = pick_essential(best.calls, self._writing, selection.essential, selection.free)
        if not essential:
            return "no call is essential, so nothing could be verified"
        turns = [*self._essential, essential]
        words = [each.query for each in self.turns[: len(turns)]]
        link_values(turns, self._plan.state, words)
        state = self._plan.state
        plain = await replay_essential(self._backend, state, turns)
        later = await replay_essential(self._backend, state, turns, PADDING)
        if fault := plain.fault or later.fault:
            return fault
        policies: dict[str, Match] = find_policies(
            plain.changes[-1],
            later.changes[-1],
            [call for each in turns for call in each],
            [call for each in plain.turns for call in each],
        )
        before = plain.changes[-2] if len(turns) > 1 else []
        parts = make_parts(essential, plain.changes[-1] != before, policies)
        self._essential.append(essential)
        answer = best.words.strip()
        return Goal(query=turn.query, calls=plain.turns[-1], answer=answer, parts=parts), plain.changes[-1]

    def _satisfies(self, play: SolverTurn, goal: Goal, expected: list[Change]) -> bool:
        """Whether a solver's turn earns the full reward of the goal."""
        if play.fault:
            return False
        evidence = {
            "changes": play.changes,
            "expected": expected,
            "writes": self._writing,
            "before": self._messages,
        }
        turn = play.trajectory.model_copy(update={"messages": play.messages, "evidence": evidence})
        return score_trajectory(turn, RewardSpec(parts=[*goal.parts]), reference=goal.calls).value == 1.0
