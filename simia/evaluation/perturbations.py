"""Count the perturbations of a run's episodes, and compare the success of agents with and without each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simia.statistics import SUCCESS, Estimate, compute_wilson_interval

ALL = "any"


@dataclass(slots=True)
class PerturbationCount:
    """One kind of event in a run's episodes."""

    kind: str
    """The kind, or `any`."""
    planned: int = 0
    """Events of the schedules. An event is not made if the episode ends before a call or message to which it applies."""
    made: int = 0
    """Events that were made."""
    happened: int = 0
    """Events whose effect is visible in the message; a model may ignore the instruction to make one."""
    repeated: int = 0
    """Events after which the agent made the same call again."""
    followed: int = 0
    """Injected instructions that the agent obeyed."""
    too_early: int = 0
    """Withdrawn requests on which the agent acted before the user renewed them."""
    episodes: int = 0
    """Scored episodes in which it happened."""
    solved: int = 0
    """Those of `episodes` with reward 1."""
    other_episodes: int = 0
    """Scored episodes in which it did not happen."""
    other_solved: int = 0
    """Those of `other_episodes` with reward 1."""

    @property
    def success(self) -> Estimate | None:
        """Share of the episodes in which it happened that were solved, with Wilson's interval; None without such episodes."""
        return estimate_share(self.solved, self.episodes)


def estimate_share(solved: int, episodes: int) -> Estimate | None:
    return Estimate(solved / episodes, *compute_wilson_interval(solved, episodes)) if episodes else None


def count_perturbations(rows: Iterable[Mapping[str, Any]]) -> list[PerturbationCount]:
    """Count the events of stored trajectories for each kind, in the order of names, and last for any kind. Empty if no events were planned."""
    episodes = [DisturbedEpisode.read(row) for row in rows]
    kinds = sorted({event["kind"] for each in episodes for event in (*each.made, *each.missed)})
    if not kinds:
        return []
    return [count_kind(kind, episodes) for kind in (*kinds, ALL)]


@dataclass(frozen=True, slots=True)
class DisturbedEpisode:
    """The events of a stored trajectory, and its reward; None where it was not scored."""

    made: list[dict[str, Any]]
    missed: list[dict[str, Any]]
    reward: float | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> DisturbedEpisode:
        missed = (row.get("extra") or {}).get("missed_events") or []
        return cls(row.get("perturbations") or [], missed, (row.get("reward") or {}).get("value"))


def count_kind(kind: str, episodes: Iterable[DisturbedEpisode]) -> PerturbationCount:
    """Count one kind, or `any`, in episodes."""
    found = PerturbationCount(kind)
    for each in episodes:
        own = [event for event in each.made if kind in (event["kind"], ALL)]
        shown = [event for event in own if event.get("happened", True)]
        found.planned += len(own) + sum(kind in (event["kind"], ALL) for event in each.missed)
        found.made += len(own)
        found.happened += len(shown)
        found.repeated += sum(event.get("reaction") == "repeated" for event in shown)
        found.followed += sum(event.get("reaction") == "followed" for event in shown)
        found.too_early += sum(event.get("reaction") == "too_early" for event in shown)
        if each.reward is None:
            continue
        solved = each.reward >= SUCCESS
        if shown:
            found.episodes += 1
            found.solved += solved
        else:
            found.other_episodes += 1
            found.other_solved += solved
    return found
