"""QueryGen as a part of a recipe: its stages, its settings, and the number of questions to expect (EnvFactory §3.4).

Its stages are `compositions`, `plans`, `queries`, `solved`, `verdicts` and `gated`. They follow a recipe's `environments` and `graph`.
"""

from __future__ import annotations

from pydantic import Field

from simia.config import Config
from simia.synthesis.conversations.conversation_settings import PlanSettings, QuerySettings, SolvingSettings
from simia.synthesis.conversations.conversation_tasks import ConversationTasks, list_composed
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.stage import Expectation, Stage
from simia.synthesis.stages.compositions import Compositions
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.plans import Plans
from simia.synthesis.stages.queries import Queries
from simia.synthesis.stages.solved import Solved

REPLIES_A_TURN = 5  # of a solver, for the projection of a dry run
TURNS = 2


class ConversationSettings(Config):
    """Conversations over composed environments (EnvFactory §3.4)."""

    plans: PlanSettings = Field(default_factory=PlanSettings)
    """Compositions of environments, and the plans that are sampled for conversations."""
    queries: QuerySettings = Field(default_factory=QuerySettings)
    """Refinements of the user's queries."""
    solving: SolvingSettings = Field(default_factory=SolvingSettings)
    """How the turns are solved."""
    difficulty: TaskDifficultySettings = Field(default_factory=TaskDifficultySettings)
    """Measured difficulty of whole conversations. Off unless `difficulty.agent` is set."""


def list_conversation_stages(settings: ConversationSettings, seed: int) -> list[Stage]:
    """The stages of QueryGen in order. They follow the stages that build environments; `graph` has one output for each."""
    tasks = ConversationTasks()
    return [
        Compositions(settings.plans.together),
        Plans(settings.plans, seed),
        Queries(settings.queries),
        Solved(settings.solving),
        Verdicts(tasks, list_composed),
        Gated(tasks, settings.difficulty, list_composed),
    ]


def expect_conversation_questions(settings: ConversationSettings, environments: int) -> dict[str, Expectation]:
    """Return stage → expected questions for this number of environments, if nothing is refused; for a dry run."""
    plans = -(-environments // settings.plans.together) * settings.plans.number
    turns = plans * min(TURNS, settings.plans.turns)
    return {
        "plans": Expectation(plans, 3500, 2000),
        "queries": Expectation(plans * (1 + bool(settings.queries.refinements)), 5000, 500),
        "solved": Expectation(turns * (settings.solving.solvers * REPLIES_A_TURN + 1), 4500, 150),
    }
