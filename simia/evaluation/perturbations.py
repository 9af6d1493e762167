"""Count the perturbations of a run's episodes, and how agents fared with and without each of them."""

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
    made: int = 0
    """Events that were made."""
    happened: int = 0
    """Events that the message shows; a model may not have followed."""
    repeated: int = 0
    """Events after which the agent made the same call again."""
    followed: int = 0
    """Injected instructions that the agent obeyed."""
    episodes: int = 0
    """Scored episodes in which it happened."""
    solved: int = 0
    """Those of them with reward 1."""
    other_episodes: int = 0
    """Scored episodes in which it did not happen."""
    other_solved: int = 0
    """Those of them with reward 1."""

    @property
    def success(self) -> Estimate | None:
        """Share of solved episodes in which it happened, with Wilson's interval; None where there are none."""
        return estimate_share(self.solved, self.episodes)

    @property
    def other_success(self) -> Estimate | None:
        """Share of solved episodes in which it did not happen; None where there are none."""
        return estimate_share(self.other_solved, self.other_episodes)


def estimate_share(solved: int, episodes: int) -> Estimate | None:
    return Estimate(solved / episodes, *compute_wilson_interval(solved, episodes)) if episodes else None


def count_perturbations(rows: Iterable[Mapping[str, Any]]) -> list[PerturbationCount]:
    """Count the events of stored trajectories, by kind in the order of their names, and of any kind last. None: no events."""
    episodes = [(row.get("perturbations") or [], (row.get("reward") or {}).get("value")) for row in rows]
    kinds = sorted({event["kind"] for events, _ in episodes for event in events})
    if not kinds:
        return []
    return [count_kind(kind, episodes) for kind in (*kinds, ALL)]


def count_kind(kind: str, episodes: Iterable[tuple[list[dict[str, Any]], float | None]]) -> PerturbationCount:
    """Count one kind in (events, reward) of each episode; the reward is None where it was not scored."""
    found = PerturbationCount(kind)
    for events, reward in episodes:
        own = [event for event in events if kind in (event["kind"], ALL)]
        shown = [event for event in own if event.get("happened", True)]
        found.made += len(own)
        found.happened += len(shown)
        found.repeated += sum(event.get("reaction") == "repeated" for event in shown)
        found.followed += sum(event.get("reaction") == "followed" for event in shown)
        if reward is None:
            continue
        solved = reward >= SUCCESS
        if shown:
            found.episodes += 1
            found.solved += solved
        else:
            found.other_episodes += 1
            found.other_solved += solved
    return found
