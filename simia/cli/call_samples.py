"""`simia fidelity --sample FILE` and `--frozen FILE`: draw a stratified set of calls, and measure a simulator on it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer
from rich.table import Table

from simia import event_loop
from simia.cli.open_questions import print_batches
from simia.cli.terminal_output import WAITS
from simia.errors import Code, UserError
from simia.report.console import Terminal
from simia.terminal import say, say_error, write_count
from simia.version import __version__

if TYPE_CHECKING:
    from simia.evaluation.call_samples import CallSample
    from simia.pack import Pack
    from simia.rollouts.settings import RolloutConfig

SHOWN_MISSES = 5
LONGEST = 300  # characters of a miss


def draw_set(
    packs: Sequence[str], path: Path, *, count: int, seed: int, split: str | None, limit: int | None, others: int
) -> None:
    """Draw a set of calls from the packs, freeze it, and print its mix."""
    from simia.evaluation.call_samples import draw_samples, freeze_samples, list_candidates
    from simia.pack import Pack

    if not packs:
        raise UserError("name the packs to sample calls from: simia fidelity PACK... --sample FILE")
    if path.exists():
        raise UserError(f"{path} exists, and a frozen set is never changed: name another file")
    loaded = {pack.name: pack for pack in map(Pack.load, packs)}
    candidates: list[CallSample] = []
    for pack in loaded.values():
        refuse_state_folder(pack)
        found = event_loop.run_command(list_candidates(pack, seed=seed, split=split, limit=limit, others=others))
        say_error(f"{pack.name}: {write_count(len(found), 'different call')}")
        candidates += found
    samples = draw_samples(candidates, count, seed=seed)
    head = freeze_samples(samples, path, seed=seed)
    print_mix(samples)
    say(f"frozen in {path}: {write_count(head.count, 'call')}, digest {head.digest}")
    say(
        f"next: simia fidelity --frozen {shlex.quote(str(path))} --knowledge code --set llm.base_url=URL --set llm.model=NAME"
    )


def refuse_state_folder(pack: Pack) -> None:
    """Raise `UserError` for a pack whose state is no JSON: a simulator cannot be shown it."""
    state = pack.file.state if pack.file else None
    if state is not None and not state.endswith(".json"):
        raise UserError(
            f"pack {pack.name}: its state is not a JSON file, so a simulator cannot hold it: leave this pack out"
        )


def print_mix(samples: Sequence[CallSample]) -> None:
    """Print how many calls of each stratum, pack and source a set has."""
    from simia.evaluation.call_samples import DELTA, STRATA, count_strata, name_bin

    out = Terminal()
    table = Table("stratum", "calls", "share", "EnvSimBench", title="mix")
    for name, number in count_strata(samples).items():
        table.add_row(name, str(number), f"{number / len(samples):.3f}", f"{STRATA[name]:.3f}")
    out.print(table)
    say(DELTA)
    packs = Counter(sample.pack for sample in samples)
    sources = Counter(sample.source for sample in samples)
    paths = Counter(name_bin(sample.paths) for sample in samples)
    for what, counts in (("packs", packs), ("calls of", sources), ("by changed paths, a row as one", paths)):
        say(f"{what}: {', '.join(f'{name} {number}' for name, number in sorted(counts.items()))}")
    say(f"tools: {len({(sample.pack, sample.call.name) for sample in samples})}")


def measure_set(
    path: Path,
    packs: Sequence[str],
    kinds: Sequence[str],
    settings: list[str],
    *,
    limit: int | None,
    name: str,
    runs: Path,
    record: Path | None = None,
) -> None:
    """Ask a simulator about a frozen set for each kind of knowledge, and print and save the figures."""
    from simia.config import load_config
    from simia.evaluation.call_samples import read_samples
    from simia.evaluation.sample_replies import ask_about_samples, load_packs
    from simia.report.change_report import collect_change_figures, make_change_panels, print_changes
    from simia.report.plots import NO_PLOTS, can_plot, save_figure
    from simia.rollouts.settings import RolloutConfig

    head, samples = read_samples(path)
    loaded = load_packs(head, packs)
    samples = samples[:limit]
    folder = runs / f"{name}-{path.stem}"
    configs = {
        kind: load_config(
            RolloutConfig, "rollout/default", [*settings, f"backend_settings.knowledge={kind}"], backend="shadow"
        )
        for kind in kinds
    }
    model = name_model(next(iter(configs.values())))
    refuse_other_model(folder, model)
    named: dict[str, list[dict[str, Any]]] = {}
    waiting: dict[str, str] = {}
    outages: dict[str, str] = {}
    for kind, config in configs.items():
        replies = folder / kind
        replies.mkdir(parents=True, exist_ok=True)
        done = event_loop.run_command(
            ask_about_samples(
                samples, loaded, config, replies, concurrency=config.concurrency, say=say_error, record=record
            )
        )
        (replies / "differences.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in done.rows))
        named[kind] = done.rows
        lost = Counter(str(row["lost"]).partition(":")[0] for row in done.rows if "lost" in row)
        answered = len(done.rows) - lost.total()
        say_error(f"{kind}: {answered} of {write_count(len(done.rows), 'call')} answered")
        unreadable = [str(row["lost"]) for row in done.rows if str(row.get("lost")).startswith(f"{Code.UNPARSABLE}:")]
        if unreadable:
            told = f"{write_count(len(unreadable), 'answer')} cannot be used, which is final, since each call is asked once"
            say_error(f"{kind}: {told}; the first: {unreadable[0]}")
        if done.waiting:
            waiting[kind] = done.waiting
        elif why := describe_outage(lost):
            outages[kind] = why
    say(f"{path}: digest {head.digest}, {write_count(len(samples), 'call')}, model {model}")
    out = Terminal()
    specs = {tool.name: tool for pack in loaded.values() for tool in (*pack.tools, *pack.user_tools)}
    print_changes(named, specs, out)
    print_misses(named)
    asked = {
        "model": model,
        "simia": __version__,
        "calls": len(samples),
        "settings": {kind: each.backend_settings for kind, each in configs.items()},
    }
    body = {"set": head.model_dump(mode="json"), "asked": asked, **collect_change_figures(named, specs)}
    (folder / "fidelity.json").write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    if can_plot() and any("transition" in row for rows in named.values() for row in rows):
        save_figure(make_change_panels(named, specs, model), folder / "fidelity.svg")
        say(f"saved in {folder}: fidelity.svg, fidelity.json")
    else:
        say(f"saved in {folder}: fidelity.json{'' if can_plot() else f'; {NO_PLOTS}'}")
    for kind, why in (waiting | outages).items():
        say(f"not complete: {kind}: {why}")
    if waiting:
        print_batches(next(iter(configs.values())).model_dump(mode="json", include={"llm", "simulator"}))
    if waiting or outages:
        say("next: run the same command again; it asks only for what is missing")
        raise typer.Exit(1 if outages else WAITS)


def describe_outage(lost: Mapping[str, int]) -> str:
    """Write how many calls were lost and can be asked again, and the most frequent reason; empty if there are none. `lost`: reason → calls."""
    missing = Counter({code: count for code, count in lost.items() if code != Code.UNPARSABLE})
    return f"{write_count(missing.total(), 'call')} lost, mostly: {missing.most_common(1)[0][0]}" if missing else ""


def name_model(config: RolloutConfig) -> str:
    """The model that plays the tools, by its name; by the kind of its endpoint where it has none."""
    model = config.simulator or config.llm
    return str(getattr(model, "model", None) or model.kind)


def refuse_other_model(folder: Path, model: str) -> None:
    """Raise `UserError` where the folder holds another model's figures, which this measure would take the place of."""
    try:
        before = orjson.loads((folder / "fidelity.json").read_bytes())["asked"]["model"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if before != model:
        raise UserError(f"{folder} has the figures of another model, {before}: choose another --name for {model}")


def print_misses(named: dict[str, list[dict[str, Any]]]) -> None:
    """Print some calls of which the changes were not exact, the true ones beside those that were named."""
    for kind, rows in named.items():
        missed = [row for row in rows if "transition" in row and not row["transition"]["exact"]]
        for row in missed[:SHOWN_MISSES]:
            step = row["transition"]
            true, said = (orjson.dumps(step[which]).decode()[:LONGEST] for which in ("real", "simulated"))
            fault = f"; {step['fault']}" if "fault" in step else ""
            say(f"{kind}: {row['sample']} {row['name']}, |Δ| {step['delta']}: true {true}; named {said}{fault}")
        if len(missed) > SHOWN_MISSES:
            say(f"{kind}: and {len(missed) - SHOWN_MISSES} more, in differences.jsonl")
