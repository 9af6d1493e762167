"""Recorded verdicts on labelled episodes: each is the answer to exactly this prompt, or the test fails.

They were given before transcripts were quoted, so the prompts are those of that time (`unquoted.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simia.envs.rewards.judge import RewardJudgeSettings
from simia.evaluation.calibration import Calibration, calibrate_judge
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.replay import RecordedReply, ReplayBackend, ReplaySettings, append_recording, read_recording
from simia.llm.types import make_reply_key
from simia.pack import Pack
from tests.evaluation.spoiling import Case, value
from tests.evaluation.unquoted import UnquotedRewardJudge

RECORDINGS = Path(__file__).parents[1] / "recordings"
MODEL = "strong"
CALLS_ONLY = RewardJudgeSettings(observations=False)  # solutions were shown so when the verdicts were recorded


async def judged(cases: Sequence[Case], pack: Pack, name: str, folder: Path) -> Calibration:
    """The oracle's verdicts, replayed. A recording whose prompts hold what is not ours (tau2, OfficeBench) has their keys alone:
    then the prompts are rendered here, and a reply belongs to the one whose key it names. `folder`: for the joined recording."""
    path = RECORDINGS / f"oracle-{name}.jsonl"
    rows = list(read_recording(path))
    if any(row.request is None for row in rows):
        path = folder / path.name
        path.unlink(missing_ok=True)
        append_recording(joined(cases, pack, rows), path)
    async with Engine(ReplayBackend(ReplaySettings(path=path)), MemoryJournal(), EngineLimits(retries=0)) as engine:
        oracle = UnquotedRewardJudge(engine, pack, CALLS_ONLY)
        return calibrate_judge(
            [(kind, value(episode), await oracle.score(episode, task)) for kind, task, episode in cases]
        )


def joined(cases: Sequence[Case], pack: Pack, rows: Sequence[RecordedReply]) -> list[RecordedReply]:
    """The prompts of these cases with their replies. A row whose `draw` names the case answers it also where an image could not be read,
    since a machine without tesseract renders another result of `ocr.recognize_file` than the recorded one."""
    replies = {row.key: row.reply for row in rows}
    by_case = {row.draw: row.key for row in rows if row.draw}
    found: list[RecordedReply] = []
    for kind, task, episode in cases:
        request = requests(pack).request(episode, task)
        key = make_reply_key("replay", MODEL, request, "")
        if key not in replies and any(call.name.startswith("ocr.") for _, _, call in episode.calls()):
            key = by_case.get(f"{kind}, {task.id}") or key
        assert key in replies, f"{kind}, {task.id}: its prompt is not the one that was answered"
        found.append(RecordedReply(request=request, reply=replies[key], model=MODEL))
    return found


def requests(pack: Pack) -> UnquotedRewardJudge:
    """An oracle that is only asked for its prompts, as a back end that takes a form of reply would get them."""
    return UnquotedRewardJudge(Engine(Structured(), MemoryJournal(), EngineLimits(retries=0)), pack, CALLS_ONLY)


class Structured:
    """Never asked anything."""

    structured, alias, model = True, "replay", MODEL

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, *_: object, **__: object) -> object:
        raise AssertionError
