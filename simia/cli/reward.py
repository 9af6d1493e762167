"""`simia reward`: measure whether a judge's verdicts can be used as rewards."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from simia import event_loop
from simia.cli.options import RUNS, add_endpoint_settings
from simia.errors import Code, UserError
from simia.report.console import Terminal
from simia.search_path import searching_from
from simia.terminal import say, say_error, write_count

if TYPE_CHECKING:
    from simia.evaluation.calibration import Calibration
    from simia.reward import Reward

Row = tuple[str, float | None, "Reward"]  # kind of agent, reward by rules, verdict
app = typer.Typer(help="Measure whether a judge's verdicts can be used as rewards.", no_args_is_help=True)
ENOUGH = 2  # missing verdicts at the start of a rollout that stop the command


@app.callback()
def group() -> None:
    """Measure whether a judge's verdicts can be used as rewards."""


@app.command()
def calibrate(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Rollouts with rule-based rewards and with both solved and unsolved episodes (for example of --agent reference, "
            "nothing, echo, canned)."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any setting of the judge, for example llm.model=NAME or oracle.votes=3; or reward_function=FILE.py:NAME instead "
            "of a judge; may be repeated.",
        ),
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Score episodes that have rule-based rewards with a judge, or with your own reward function. Prints agreement, kappa, false passes by
    kind, and cost.

    A judge's verdicts are stored in the rollouts' folders and reused.
    """
    print_calibration(event_loop.run_command(calibrate_runs(names, add_endpoint_settings(settings), runs)))


async def calibrate_runs(names: list[str], settings: list[str], runs: Path) -> Calibration:
    from simia.config import load_config
    from simia.envs.rewards.judge import RewardJudge
    from simia.envs.rewards.reward_function import FinishedEpisode, load_reward_function
    from simia.evaluation.calibration import calibrate_judge
    from simia.jobs import Run
    from simia.llm.backends import find_price, open_backend
    from simia.llm.budget import share_budget
    from simia.llm.engine import Engine
    from simia.pack import Pack
    from simia.rollouts.settings import RolloutConfig
    from simia.trajectory import Trajectory

    judge = load_config(RolloutConfig, "rollout/default", settings)
    rows: list[Row] = []
    paid: list[Any] = []
    async with contextlib.AsyncExitStack() as stack:
        function = load_reward_function(judge.reward_function) if judge.reward_function is not None else None
        model = open_backend(judge.llm, say=say)
        if function is None:
            await model.start()
            stack.push_async_callback(model.close)
        opened: list[tuple[Run, Engine]] = []
        for name in names:
            run = Run.open(runs, name)
            stack.callback(run.close)
            if not run.is_rollout:
                raise UserError(f"{run.id} is not a rollout: play one with `simia rollout PACK --agent reference`")
            saved = run.saved_config()
            if saved.get("backend") not in ("executable", "shadow") or is_judged_otherwise(saved):
                raise UserError(f"{run.id} has no rule-based rewards from an executable world to compare with")
            engine = Engine(model, run.ledger, judge.limits, find_price(judge.llm))
            stack.callback(engine.gate.close)
            opened.append((run, engine))
        share_budget([engine for _, engine in opened])  # a cap holds for the whole command
        for run, engine in opened:
            saved = run.saved_config()
            with searching_from(run.start_folder):
                pack, kind = Pack.load(saved["pack"]), str(saved.get("agent"))
            oracle = RewardJudge(engine, pack, judge.oracle)
            played: list[Row] = []
            for item in run.ledger.items():
                body = run.ledger.result(item.id)
                found = Trajectory.from_row(body["trajectory"]) if body and body["trajectory"] else None
                if found is None or found.reward is None or found.reward.value is None:
                    continue
                task = pack.task(str(item.spec["task"]))
                if function is None:
                    verdict = await oracle.score(found, task)
                else:
                    verdict = await function.score(FinishedEpisode(found, task, found.reward))
                played.append((kind, found.reward.value, verdict))
                stop_without_verdicts(played)
            stop_without_verdicts(played, whole=True)
            rows += played
            part = calibrate_judge(played)
            say_error(f"{run.id}: {part.judged} judged, {part.errors} without a verdict")
            paid.append((kind, oracle.usage))
    calibration = calibrate_judge(rows)
    for kind, usage in paid:
        calibration.pay(kind, usage)
    return calibration


def is_judged_otherwise(saved: Mapping[str, Any]) -> bool:
    """Whether a rollout's rewards are a judge's or a function's."""
    return saved.get("reward") in ("oracle", "function") or saved.get("reward_function") is not None


def stop_without_verdicts(rows: Sequence[Row], *, whole: bool = False) -> None:
    """Stop if the judge does not answer: after a rollout (`whole`) without a verdict, or earlier for a wrong address or key, since
    each call is retried for about a minute."""
    silent = set(Code) - {Code.UNPARSABLE, Code.BUDGET} if whole else {Code.CONNECTION, Code.AUTH, Code.NOT_FOUND}
    verdicts = [verdict for _, _, verdict in rows]
    if not verdicts or not (whole or len(verdicts) == ENOUGH):
        return
    if all(each.value is None and each.error in silent for each in verdicts):
        say_error(f"no verdict was received: {verdicts[-1].error}: {verdicts[-1].rationale}")
        say_error("stopped; run the same command again to continue")
        raise typer.Exit(1)


def print_calibration(found: Calibration) -> None:
    if not found.judged and found.unasked:
        raise UserError(
            f"no episode was judged: the budget ended with {write_count(found.unasked, 'episode')} unasked: raise limits.max_cost, limits.max_tokens or limits.max_requests"
        )
    if not found.judged:
        raise UserError("none of these episodes has both a reward by rules and a verdict")
    low, high = found.interval
    kappa = "undefined: all ratings are equal" if found.kappa is None else f"{found.kappa:.3f}"
    say(
        f"{found.judged} judged ({found.solved} solved by the rules), {found.errors} without a verdict; "
        f"agreement {found.share:.3f} [{low:.3f}, {high:.3f}], kappa {kappa}"
    )
    table = Table("episodes", "number", "false passes", "false fails", "tokens a verdict", "dollars")
    for kind, count in found.kinds.items():
        cost = found.costs.get(kind)
        table.add_row(
            kind, str(count), str(found.false_passes[kind]), str(found.false_fails[kind]),
            f"{found.tokens[kind] / count:.0f}", "unknown" if cost is None else f"{cost:.4f}",
        )  # fmt: skip
    Terminal().print(table)
    if found.cost:
        share = found.cost / sum(found.kinds.values())
        say(f"cost of the verdicts: {found.cost:.4f} dollars, {share:.5f} each")
    if found.unasked:
        say(
            f"not judged: budget ({write_count(found.unasked, 'episode')}); run the same command with a higher cap to judge these"
        )
        raise typer.Exit(1)
