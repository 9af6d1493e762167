"""`simia fidelity`: how far a pack's simulated world is from its real one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from simia import loop
from simia.cli.amplify import RUNS
from simia.cli.rollout import endpoint
from simia.errors import UserError

out = Console()


def fidelity(
    pack: Annotated[
        str, typer.Argument(help="Pack with code and tasks that have solutions: a name of seeds/, or a folder.")
    ],
    limit: Annotated[int | None, typer.Option(help="Only the first so many tasks.")] = None,
    split: Annotated[str | None, typer.Option(help="Only tasks of this split.")] = None,
    knowledge: Annotated[
        list[str] | None,
        typer.Option(help="schema, reference or state; may be repeated. Unset: all that the pack has."),
    ] = None,
    forced: Annotated[
        bool,
        typer.Option(
            help="Each call in the world as it truly is; --no-forced: the simulator goes on from its own answers."
        ),
    ] = True,
    name: Annotated[str, typer.Option(help="Beginning of the runs' names.")] = "fidelity",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting of a rollout, as llm.model=gpt-5-mini.")
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Play the tasks' solutions for real with the simulator beside them, and compare call by call.

    A row for each kind of knowledge, with and without the ledger. Each is a run, so nothing that was paid for is asked again.
    """
    from simia.pack import Pack
    from simia.verify.fidelity import Fidelity

    loaded = Pack.load(pack)
    if loaded.executable is None:
        raise UserError(f"pack {loaded.name} has no code, so there is no real world to compare with")
    path = loaded.path_of("state")
    kinds = knowledge or ["schema", "reference", *(["state"] if path is not None and path.suffix == ".json" else [])]
    found: dict[tuple[str, bool], Fidelity] = {}
    for kind in kinds:
        for ledger in (True, False):
            run = f"{name}-{loaded.name}-{kind}{'' if ledger else '-no-ledger'}{'' if forced else '-free'}"
            given = [
                f"backend_settings={{knowledge: {kind}, ledger: {str(ledger).lower()}, forced: {str(forced).lower()}}}"
            ]
            found[kind, ledger] = loop.run(one(pack, run, [*endpoint(settings or []), *given], limit, split, runs))
    show(loaded.name, found)


async def one(pack: str, name: str, settings: list[str], limit: int | None, split: str | None, runs: Path) -> Any:
    from simia.config import load
    from simia.pack import Pack
    from simia.rollout.job import resume, rollout
    from simia.rollout.settings import RolloutConfig
    from simia.runs import Run
    from simia.verify.fidelity import figures

    if (runs / name).is_dir():
        await resume(name, runs=runs)
    else:
        fixed = {
            "pack": pack,
            "backend": "shadow",
            "agent": "reference",
            "limit": limit,
            "split": split,
            "reward": "rules",
        }
        config = load(RolloutConfig, "rollout/default", settings, **fixed)
        await rollout(config, runs=runs, name=name)
    run = Run.read_only(runs, name)
    try:
        rows = []
        for item in run.ledger.items():
            body = run.ledger.result(item.id)
            if body and body["trajectory"]:
                rows += (body["trajectory"].get("evidence") or {}).get("differences", [])
    finally:
        run.close()
    loaded = Pack.load(pack)
    specs = {tool.name: tool for tool in (*loaded.tools, *loaded.user_tools)}
    (runs / name / "differences.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return figures(rows, specs)


def show(pack: str, found: dict[tuple[str, bool], Any]) -> None:
    # schema: results of the right shape; errors: success and refusal agree; F1: of the results' values; against: contradict what
    # was said; astray: distance of the named changes from the real ones, at the first and the last step.
    table = Table("knows", "ledger", "calls", "lost", "schema", "errors", "F1", "against", "astray")
    for column in table.columns:
        column.no_wrap = True
    for (kind, ledger), each in found.items():
        total = each.total
        steps = list(each.distance.values())
        table.add_row(
            kind, "yes" if ledger else "no", str(total.calls), str(total.lost), share(total.schema_validity),
            share(total.agreement), share(total.value_f1), str(total.contradicting),
            f"{steps[0]:.2f} → {steps[-1]:.2f}" if steps else "",
        )  # fmt: skip
    out.print(f"{pack}: the simulated world beside the real one", highlight=False)
    out.print(table)
    best = max(found.values(), key=lambda each: each.total.value_f1 or 0.0)
    table = Table("tool", "calls", "schema", "errors", "F1", title="by tool, in the best row")
    for name, each in sorted(best.tools.items(), key=lambda pair: pair[1].value_f1 or 0.0):
        table.add_row(name, str(each.calls), share(each.schema_validity), share(each.agreement), share(each.value_f1))
    out.print(table)


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
