"""Tasks with goals and trajectories of solved conversations, and the packs that hold both (EnvFactory §3.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.envs.play.record import make_seed_row
from simia.pack_provenance import PackProvenance
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.conversations.conversation import ComposedEnvironment, ConversationPlan, SolvedConversation
from simia.synthesis.stage import StageOutputs
from simia.task import Measurement, Task
from simia.trajectory import Message, Trajectory

SOLVER = "solver"  # role of the agents that play the turns
SINGLE, MULTI = "single_turn", "multi_turn"


def make_conversation_task(
    key: str, plan: ConversationPlan, composed: ComposedEnvironment, solved: SolvedConversation
) -> Task:
    """Make the task of a solved conversation: a goal for each turn, with essential calls and masks.

    The reward `trace_state` reads `extra.environments`, the tables of each environment, and `extra.calls`, the number of calls in the selected
    solution. A task with one turn gets the solvers' pass rate as measured difficulty. Longer ones do not: there the solvers of a later turn
    began after the selected solutions of the turns before.
    """
    goals = [turn.goal for turn in solved.turns]
    owners = {name: environment.partition("/")[0] for environment, name in composed.tools.items()}
    first = solved.turns[0]
    crossed = dict.fromkeys(owners[call.name] for goal in goals for call in goal.calls)
    return Task(
        id=f"conversation-{key.rpartition('/')[2]}",
        instruction=plan.scenario,
        profile=plan.persona,
        initial={"state": plan.state},
        goals=goals,
        tags=[MULTI if len(goals) > 1 else SINGLE, *crossed],
        measured={SOLVER: Measurement(n=first.solvers, solved=first.passed)} if len(goals) == 1 else {},
        extra={"environments": composed.tables, "calls": len(list(make_trajectory(solved).calls()))},
    )


def make_trajectory(solved: SolvedConversation) -> Trajectory:
    """The conversation of the selected solvers, with their look-ups."""
    return Trajectory(messages=[Message.model_validate(row) for turn in solved.turns for row in turn.messages])


class ConversationTasks:
    """The tasks of solved conversations, as stages `verdicts` and `gated` read them."""

    def list_tasks(self, outputs: StageOutputs) -> dict[str, dict[str, Task]]:
        """Composition → key of a conversation → its task, in the order of the plans."""
        found: dict[str, dict[str, Task]] = {}
        for key, row in outputs.of("solved").items():
            plan = ConversationPlan.model_validate(outputs.of("plans")[key])
            composed = ComposedEnvironment.model_validate(outputs.of("compositions")[plan.composition])
            task = make_conversation_task(key, plan, composed, SolvedConversation.model_validate(row))
            found.setdefault(plan.composition, {})[key] = task
        return found

    def list_words(self, outputs: StageOutputs) -> dict[str, dict[str, str]]:
        """Composition → key of a conversation → its queries."""
        return {
            composition: {key: "\n".join(goal.query for goal in task.goals) for key, task in tasks.items()}
            for composition, tasks in self.list_tasks(outputs).items()
        }


def list_composed(outputs: StageOutputs) -> dict[str, Any]:
    """The compositions as environments, by key."""
    return {key: row["built"] for key, row in outputs.of("compositions").items()}


def list_kept_compositions(outputs: StageOutputs) -> dict[str, Any]:
    """The compositions that have tasks, by key."""
    kept = {outputs.of("plans")[key]["composition"] for key in outputs.of("gated")}
    return {key: row for key, row in outputs.of("compositions").items() if key in kept}


def write_conversation_pack(
    outputs: StageOutputs, composition: str, folder: Path, provenance: PackProvenance | None = None
) -> None:
    """Write the pack of a composition.

    Its tasks are for reinforcement learning. Its seeds, which `simia export` writes for supervised training, are the conversations of the
    selected solvers.
    """
    composed = ComposedEnvironment.model_validate(outputs.of("compositions")[composition])
    tasks, seeds = [], []
    for key, row in outputs.of("gated").items():
        if outputs.of("plans")[key]["composition"] == composition:
            task = Task.model_validate(row)
            solved = SolvedConversation.model_validate(outputs.of("solved")[key])
            tasks.append(task)
            seeds.append(make_seed_row(make_trajectory(solved).model_copy(update={"task_id": task.id}), task))
    write_environment(
        folder,
        composed.built,
        tasks=tasks,
        seeds=seeds,
        graph=composed.graph.rename(composed.tools),
        provenance=provenance or outputs.origin,
        user="scripted",
    )
