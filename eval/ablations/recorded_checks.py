"""Measure what simia's checks of trajectories exclude: the same recorded replies with the checks on and off. No model is asked.

    python -m eval.ablations.recorded_checks

The replies are the recordings of `simia amplify`: two of small local models, the others of a strong hosted one (tests/recordings/README.md, and
eval/loop/recording.jsonl). `amplification-lockers-second` is left out, since it repeats replies of `amplification-lockers`. Each reply is
parsed, checked and selected as in `simia amplify`. Every arm checks that a reply can be read and that calls fit their tools: these checks
have no switch.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eval.ablations.outcomes import save_counts
from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from simia.llm.replay import read_recording

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings"
RESULTS = Path(__file__).parent / "results"
LOOP = ROOT / "eval" / "loop"
SMALL = ("quickstart", "small-tagged")
"""Recordings of small local models."""
STRUCTURE = ("identifiers", "refusals", "language", "goals")
TRUTH = ("dates", "answer_identifiers", "claimed_actions", "result_entities", "consistent_results", "written_values")
ARMS: dict[str, tuple[str, ...]] = {
    "checks": (),
    "without checks of structure": STRUCTURE,
    "without both": (*STRUCTURE, *TRUTH),
}
"""Arm → the checks that are off. All of them are on by default."""


@dataclass(frozen=True)
class Recording:
    """A recorded run of `simia amplify`."""

    name: str
    path: Path
    config: str
    settings: tuple[str, ...]

    @property
    def model(self) -> str:
        return "small models" if self.name in SMALL else "a strong model"

    def list_items(self) -> list[str]:
        """Items that have a reply. Further replies of an item are repairs; a recording need not begin with the first item."""
        return sorted({row.draw.partition(".")[0] for row in read_recording(self.path)})


def list_recordings() -> list[Recording]:
    found = []
    for path in sorted(RECORDINGS.glob("*.expected.json")):
        name = path.name.removesuffix(".expected.json")
        told = json.loads(path.read_text(encoding="utf-8"))
        settings = tuple(each for each in told["settings"] if not each.startswith("stop.attempts="))
        found.append(Recording(name, RECORDINGS / f"{name}.jsonl", told["config"], settings))
    pack = f"seeds.packs=[{LOOP / 'pack'}]"
    found.append(Recording("lockers", LOOP / "recording.jsonl", str(LOOP / "amplify.yaml"), (pack,)))
    path = RECORDINGS / "amplification-lockers.jsonl"
    return [*found, Recording(path.stem, path, str(LOOP / "amplification.yaml"), (pack,))]


@contextmanager
def use_recorded_seeds() -> Iterator[None]:
    """Look for packs as they were when the replies were recorded."""
    before = os.environ.get("SIMIA_PATH")
    os.environ["SIMIA_PATH"] = str(RECORDINGS)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SIMIA_PATH"]
        else:
            os.environ["SIMIA_PATH"] = before


def replay(recording: Recording, off: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Read the replies again with these checks off. Item → `passed`, or why it was refused."""
    items = recording.list_items()
    attempts = int(items[-1].lstrip("i")) + 1
    settings = [*recording.settings, "llm.kind=replay", "llm.match=draw", f"llm.path={recording.path}"]
    settings += [f"stop.attempts={attempts}", *(f"checks.{name}=false" for name in off)]
    config = load_config(AmplifyConfig, recording.config, settings, n=attempts)
    asyncio.run(start_amplification(config, runs=folder, name=recording.name, say=lambda line: None))
    with closing(Run.read_only(folder, recording.name)) as run:
        found = {item.id: str(item.reason or item.status) for item in run.ledger.items()}
    if unread := [item for item in items if found.get(item, "replay_miss") == "replay_miss"]:
        raise UserError(f"{recording.name}: {len(unread)} of {len(items)} recorded items were not read, as {unread[0]}")
    return {item: found[item] for item in items}


def replay_all(recordings: list[Recording]) -> dict[str, dict[str, dict[str, str]]]:
    """Arm → recording → item → verdict."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    with use_recorded_seeds():
        for arm, off in ARMS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[arm] = {each.name: replay(each, off, Path(folder)) for each in recordings}
    return found


def count_all(
    recordings: list[Recording], found: Mapping[str, Mapping[str, Mapping[str, str]]]
) -> list[dict[str, object]]:
    """Count accepted replies by arm and kind of model, and by reason the replies that an arm accepts but all checks together refuse."""
    rows: list[dict[str, object]] = []
    for model in ("small models", "a strong model"):
        names = [each.name for each in recordings if each.model == model]
        for arm in ARMS:
            verdicts = [verdict for name in names for verdict in found[arm][name].values()]
            rows.append(
                {
                    "arm": arm,
                    "measure": f"accepted, of the replies of {model}",
                    "count": verdicts.count("passed"),
                    "of": len(verdicts),
                }
            )
    refused = [
        (name, item, reason)
        for name, items in found["checks"].items()
        for item, reason in items.items()
        if reason != "passed"
    ]
    for arm in list(ARMS)[1:]:
        more = [reason for name, item, reason in refused if found[arm][name][item] == "passed"]
        rows += [
            {
                "arm": f"{arm}: {reason}",
                "measure": "accepted, of those that all checks refuse",
                "count": more.count(reason),
                "of": len(refused),
            }
            for reason in sorted(set(more))
        ]
    return rows


def main() -> None:
    recordings = list_recordings()
    rows = count_all(recordings, replay_all(recordings))
    save_counts("own_checks_accepted", "Recorded replies with and without checks", rows, RESULTS)


if __name__ == "__main__":
    main()
