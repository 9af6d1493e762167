"""Statistics of a training over its steps: rewards, lengths, endings, and how often the judge agrees with the tasks' rules.

They are computed from the figures of the kept episodes. If a resumed training played a step again, the earlier episodes are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from simia.errors import Code
from simia.jobs import Run
from simia.jobs.shared_run import EpisodeFigures
from simia.statistics import SUCCESS


class StepStatistics(BaseModel):
    """One step, or several steps together."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    first: int
    """The first step."""
    last: int
    """The last step; the first one for a single step."""
    validates: bool
    """Whether these are validation episodes."""
    episodes: int
    """Episodes that were played."""
    scored: int
    """Episodes with a reward."""
    groups: int
    """Groups with at least one reward."""
    flat: int
    """Groups whose rewards are all equal, which give no training signal."""
    reward: float | None
    """Mean reward that the trainer got."""
    solved: float | None
    """Share of the scored episodes with outcome 1. The outcome is the reward without those of single turns."""
    turns: float | None
    """Mean number of the policy's messages in scored episodes."""
    tokens: float | None
    """Mean number of tokens that the policy sampled in scored episodes; None: not known."""
    ends: dict[str, int]
    """How the episodes ended → their number."""
    judged: int
    """Episodes that a model judged and to which the task's rules could be applied."""
    agreed: int
    """Judged episodes for which the judge and the rules agree whether the task was solved."""

    @property
    def agreement(self) -> float | None:
        """Share of the compared episodes on which judge and rules agree."""
        return self.agreed / self.judged if self.judged else None

    @property
    def terminated(self) -> float | None:
        """Share of the episodes that ended by themselves."""
        return self.share_ended("terminated")

    def share_ended(self, kind: str) -> float | None:
        """Share of the episodes with this ending: terminated, truncated or aborted."""
        return sum(n for end, n in self.ends.items() if end.startswith(kind)) / self.episodes if self.episodes else None


class TrainingStatistics(BaseModel):
    """The present state of a training's run."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    run: str
    """Id of the run."""
    trainer: str
    """The trainer."""
    model: str
    """The policy that is trained."""
    pack: str
    """The pack."""
    checkpoints: str
    """The trainer's folder of checkpoints."""
    in_progress: bool
    """Whether a process of the training writes to the run."""
    superseded: int
    """Earlier episodes of steps that a resumed training played again; no other figure includes them."""
    total: StepStatistics | None
    """All training steps together; None: none was played."""
    steps: list[StepStatistics]
    """Each training step."""
    validations: list[StepStatistics]
    """Each validation, by the number of steps before it."""


def iterate_figures(run: Run) -> Iterator[EpisodeFigures]:
    """Yield the figures of the episodes that count."""
    for item in run.ledger.items():
        if item.reason != Code.SUPERSEDED:
            yield EpisodeFigures.model_validate(item.spec)


def collect_training(run: Run) -> TrainingStatistics:
    """Compute the statistics of a training's run, also while the training goes on."""
    by_step: dict[tuple[bool, int], list[EpisodeFigures]] = defaultdict(list)
    for figures in iterate_figures(run):
        by_step[figures.validates, figures.step].append(figures)
    learnt = [each for (validates, _), members in by_step.items() if not validates for each in members]
    facts, config = run.ledger.meta("facts") or {}, run.saved_config()
    return TrainingStatistics(
        run=run.id,
        trainer=str(config.get("trainer")),
        model=str(facts.get("model", "unknown")),
        pack=str(facts.get("pack", "unknown")),
        checkpoints=str(config.get("folder")),
        in_progress=run.condition().working,
        superseded=run.ledger.reasons().get(Code.SUPERSEDED, 0),
        total=summarize_episodes(learnt) if learnt else None,
        steps=[summarize_episodes(by_step[key]) for key in sorted(by_step) if not key[0]],
        validations=[summarize_episodes(by_step[key]) for key in sorted(by_step) if key[0]],
    )


def summarize_episodes(episodes: Sequence[EpisodeFigures]) -> StepStatistics:
    """Summarize episodes of one or several steps, at least one."""
    scored = [(each, each.reward) for each in episodes if each.reward is not None]
    rewards = [reward for _, reward in scored]
    outcomes = [reward if each.outcome is None else each.outcome for each, reward in scored]
    groups: dict[tuple[int, str], list[float]] = defaultdict(list)
    for each, reward in scored:
        groups[each.step, each.group].append(reward)
    compared = [(each.judge, each.rules) for each in episodes if each.judge is not None and each.rules is not None]
    return StepStatistics(
        first=min(each.step for each in episodes),
        last=max(each.step for each in episodes),
        validates=episodes[0].validates,
        episodes=len(episodes),
        scored=len(scored),
        groups=len(groups),
        flat=sum(min(values) == max(values) for values in groups.values()),
        reward=average(rewards),
        solved=average([float(outcome >= SUCCESS) for outcome in outcomes]),
        turns=average([each.turns for each, _ in scored]),
        tokens=average([each.tokens for each, _ in scored if each.tokens is not None]),
        ends=dict(Counter(f"{each.end}: {each.code or 'no reason'}" for each in episodes).most_common()),
        judged=len(compared),
        agreed=sum((judge >= SUCCESS) == (rules >= SUCCESS) for judge, rules in compared),
    )


def average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
