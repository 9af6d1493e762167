"""Quality judges: models that judge the accepted trajectories of a run.

Rules check form; only a reader sees whether a world is consistent or an answer honest. A judge makes mistakes too, so
there may be several, and their agreement is reported. The sample is chosen by a hash of each item: it is the same each
time, a larger one contains a smaller one, and a run that grows keeps most of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable

from simia.errors import UserError
from simia.jobs import Run
from simia.llm.engine import Engine
from simia.llm.types import describe_waiting
from simia.quality.judging.panel import Panelist, gather_all
from simia.quality.judging.run_judgement import JudgedItem, Judgement, VerdictFile
from simia.quality.judging.settings import QualitySettings
from simia.trajectory import Trajectory, digest

Work = tuple[str, str, Trajectory]  # judge, item, what it made


async def judge_run(
    run: Run,
    config: QualitySettings,
    engines: dict[str, Engine],
    *,
    on_verdict: Callable[[JudgedItem], None] | None = None,
) -> Judgement:
    """Ask every judge about the sampled accepted trajectories. `engines`: one for each judge, by name; they may be the same.

    What is already judged in the same way is not asked again; a verdict that was an error is. Verdicts of other judges, and of
    the same judges asked in another way, stay in the file unless the trajectory has changed. Raises `BudgetReached` after
    the replies on their way have been written down.
    """
    if missing := [name for name in config.judges if name not in engines]:
        raise UserError(f"judge {missing[0]!r} has no engine: open a model for it")
    panel = {name: Panelist(judge, engines[name]) for name, judge in config.judges.items()}
    by = {name: hash_judge(panelist) for name, panelist in panel.items()}
    accepted = dict.fromkeys(str(body["trajectory"]["provenance"]["item"]) for body in run.ledger.accepted())
    chosen = sample_items(accepted, config.sample, config.seed)
    book = VerdictFile(run.folder)
    current: dict[str, str] = {}  # item → its trajectory's id

    def todo() -> Generator[Work]:
        for item in chosen:
            trajectory = read_trajectory(run, item)
            current[item] = trajectory.id
            for name in panel:
                known = book.rows.get((name, by[name], item))
                if known is None or known.trajectory != trajectory.id or known.verdict.error is not None:
                    yield name, item, trajectory

    async def judge_item(name: str, item: str, trajectory: Trajectory) -> None:
        verdict = await panel[name].verdict(trajectory, item=f"judge-{name}-{item}", draw=f"judge.{name}")
        judged = JudgedItem(judge=name, by=by[name], item=item, trajectory=trajectory.id, verdict=verdict)
        book.add(judged)
        if on_verdict is not None:
            on_verdict(judged)

    workers = sum(engine.limits.concurrency + 16 for engine in {id(e): e for e in engines.values()}.values())
    queue = todo()

    async def work_through() -> None:
        for work in queue:
            try:
                await judge_item(*work)
            except Exception:
                queue.close()  # no further work is started; running work is awaited
                raise

    await gather_all(work_through() for _ in range(workers))
    book.rewrite(
        row
        for name, way in dict.fromkeys([*((judge, way) for judge, way, _ in book.rows), *by.items()])
        for item in accepted
        if (row := book.rows.get((name, way, item))) is not None and row.trajectory == current.get(item, row.trajectory)
    )
    waiting = describe_waiting(engine.backend for engine in engines.values())
    return Judgement([book.rows[name, by[name], item] for name in panel for item in chosen], waiting)


def hash_judge(panelist: Panelist) -> str:
    """Hash what a verdict depends on besides the trajectory."""
    backend, judge = panelist.engine.backend, panelist.judge
    asked = judge.model_dump(mode="json", include={"sampling", "votes", "tries", "dimensions"})
    return digest([backend.alias, backend.model, backend.structured, panelist.rubric.files, asked])


def read_trajectory(run: Run, item: str) -> Trajectory:
    """Read one trajectory; a single long read would keep a running run from checkpointing its log."""
    body = run.ledger.result(item)
    if body is None or not body["trajectory"]:
        raise UserError(f"run {run.id} has no trajectory for {item}: it is being rechecked; judge it afterwards")
    return Trajectory.from_row(body["trajectory"])


def sample_items(found: Iterable[str], size: int | None, seed: int) -> dict[str, None]:
    """Choose `size` items by hash, in their order."""
    if size is None:
        return dict.fromkeys(found)
    chosen = heapq.nsmallest(size, ((digest([seed, item]), i, item) for i, item in enumerate(found)))
    return dict.fromkeys(item for _, _, item in sorted(chosen, key=lambda entry: entry[1]))
