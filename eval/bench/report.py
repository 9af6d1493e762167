"""Compare the report of a large run with the lower bound of its cost: reading, decompressing and parsing every result.

    python eval/bench/report.py                     # 90,000 results of 12 KB, built in a temporary folder (a minute)
    python eval/bench/report.py --n 5000
    python eval/bench/report.py --keep runs/bench   # build there, or use the run that is already there

The run is made of our own seeds: several conversations of a pack one after the other until there are 12 KB of messages, digits and
names changed from item to item, an eighth of them rejected for the usual reasons. Three processes are measured, one after the other:
the bound, the figures with their tables, and the page. Prints a table; the last line is one JSON object; the exit code is 1 where
the figures take more than 10 s or 300 MB, or the page is larger than 3 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson
import zstandard

SIZE = 12_000  # bytes of messages, as a reply of 10 to 16 KB has them
FAULTS = (
    "unparsable",
    "ungrounded_id",
    "bad_arguments",
    "duplicate",
    "truncated",
    "unknown_tool",
    "leak",
    "near_duplicate",
)
NAMES = ("Ines Moura", "Tariq Aziz", "Lena Vogt", "Bo Lindahl", "Mei Tanaka", "Ola Nowak", "Sam Okoro", "Ada Quist")
LIMITS = {"figures_s": 10.0, "figures_mb": 300.0, "page_mb": 3.0}


def build(root: Path, n: int, name: str) -> None:
    """A finished run, its rows written as the job writes them."""
    from simia.amplification.model_mix import Writer
    from simia.amplification.session import store_seeds
    from simia.amplification.settings import AmplifyConfig
    from simia.amplification.simulate import Simulator
    from simia.config import load_config
    from simia.jobs import PASSED, REJECTED, Run
    from simia.jobs.database import Packed
    from simia.jobs.tables import KEEP, PUT
    from simia.llm.types import Reply
    from simia.quality.exact_duplicates import hash_content
    from simia.trajectory import Trajectory, Usage, digest

    config = load_config(AmplifyConfig, "amplify/default", [f"n={n}"])
    from simia.amplification.seeds import load_seed_packs as load_seeds

    seeds = load_seeds(config.seeds, config.checks)
    facts = {"model": "bench", "alias": "bench", "structured": False, "prompts": {}, "seeds": seeds.digest}
    run = Run.create(root, config, name=name, facts=facts)
    ledger, simulator = (
        run.ledger,
        Simulator(config, seeds, writers=[Writer("fake", "fake", structured=False)], run_id=name),
    )
    store_seeds(run, seeds)
    long = {seed.id: lengthened(seed, seeds.groups[seed.pack or ""]) for seed in seeds.order}
    draw, began = random.Random(7), time.time() - n * 0.01
    heads = {seed.id: digest([seed.system, [tool.name for tool in seed.tools]]) for seed in seeds.order}
    accepted = ord_ = 0
    while accepted < n:
        item = simulator.item(ord_)
        seed = simulator.by_id[item.spec["seed"]]
        row = changed(long[seed.id], draw, ord_)
        fault = FAULTS[min(int(draw.expovariate(0.5)), len(FAULTS) - 1)] if draw.random() < 0.125 else None
        key, request = f"{ord_:032x}", simulator.request(item)
        usage = Usage(prompt=4_000, completion=3_000, cached=2_400, cost=0.0021)
        reply = Reply(text="{" if fault else orjson.dumps(row["messages"]).decode(), usage=usage)
        asked, texts = ledger._shared(request.canonical())
        body = Packed(orjson.dumps(reply.stored()))
        at = began + ord_ * 0.01
        for statement in texts:
            ledger.db.put(*statement)
        ledger.db.put("replies", KEEP["replies", "reply"], (key, f"{item.id}.0", asked, body, at))
        ledger.plan(item)
        values = (item.id, 0, key, "got", None, usage.prompt, usage.completion, usage.cached, usage.cost, at - 9, at)
        ledger.db.put("ledger", PUT["ledger", "attempt"], values)
        item.status = REJECTED if fault else PASSED
        item.reason, item.detail = fault, f"{fault} at messages[1].calls[0]: as the bench has it" if fault else None
        issues = [{"code": fault, "where": "messages[1].calls[0]", "detail": "as the bench has it"}] if fault else []
        made = Trajectory.from_row(row) if ord_ < 64 else None  # the check that these are trajectories at all
        hashed = hash_content(made) if made else digest(row["messages"])
        head = ledger.head(heads[seed.id], lambda seed=seed: head_of(seed))  # type: ignore[misc]
        result: dict[str, Any] = {"trajectory": None, "issues": issues, "repairs": []}
        if fault != "unparsable":
            result |= {"trajectory": row, "head": head, "repairs": ["code_fence"] if ord_ % 9 == 0 else []}
        ledger.conclude(item, None if fault else hashed, result)
        if not fault:
            ledger.accept(item, hashed)
            accepted += 1
        ord_ += 1
        if ord_ % 2_000 == 0:
            ledger.flush()
    ledger.set_meta("stopped", {"kind": "complete", "detail": ""})
    ledger.flush()
    run.close()


def head_of(seed: Any) -> dict[str, Any]:
    row = seed.to_row()
    return {name: row[name] for name in ("system", "tools") if name in row}


def lengthened(seed: Any, group: list[Any]) -> dict[str, Any]:
    """Join the seed's conversation and its neighbours', with new call ids, without the head."""
    row = {name: value for name, value in seed.to_row().items() if name not in ("system", "tools")}
    start, messages = group.index(seed), []
    for i in range(len(group) * 4):
        for message in group[(start + i) % len(group)].to_row()["messages"]:
            for call in message.get("calls", []):
                call["id"] = f"{i}-{call['id']}"
            if "call_id" in message:
                message["call_id"] = f"{i}-{message['call_id']}"
            messages.append(message)
        if len(orjson.dumps(messages)) >= SIZE:
            break
    return row | {"messages": messages}


def changed(row: dict[str, Any], draw: random.Random, ord_: int) -> dict[str, Any]:
    """Change all digits and the name. No digit becomes a zero, since numbers must not begin with one."""
    digits = list("123456789")
    draw.shuffle(digits)
    table = bytes.maketrans(b"123456789", "".join(digits).encode())
    messages: list[dict[str, Any]] = orjson.loads(orjson.dumps(row["messages"]).translate(table))
    messages[0] = messages[0] | {"content": f"{draw.choice(NAMES)} here. {messages[0]['content']} (case {ord_})"}
    return row | {"messages": messages}


def bound(folder: str) -> dict[str, Any]:
    unpack, size = zstandard.ZstdDecompressor(), 0
    connection = sqlite3.connect(f"file:{folder}/ledger.db?mode=ro", uri=True)
    began = time.perf_counter()
    for (body,) in connection.execute("SELECT body FROM result"):
        raw = unpack.decompress(body)
        size += len(raw)
        orjson.loads(raw)
    return {"s": time.perf_counter() - began, "mb": peak(), "read_mb": size / 1e6}


def figures(folder: str) -> dict[str, Any]:
    import io

    from rich.console import Console

    from simia.jobs import Run
    from simia.report.collect_statistics import collect_statistics
    from simia.report.terminal_report import print_report

    began = time.perf_counter()
    run = Run.read_only(Path(folder).parent, folder)
    try:
        facts = collect_statistics(run)
        print_report(facts, Console(file=io.StringIO(), width=100))
    finally:
        run.close()
    return {"s": time.perf_counter() - began, "mb": peak(), "accepted": facts.accepted}


def page(folder: str) -> dict[str, Any]:
    from simia.jobs import Run
    from simia.report.collect_statistics import collect_statistics
    from simia.report.html_page import write_html

    run = Run.read_only(Path(folder).parent, folder)
    try:
        facts = collect_statistics(run)
        path = Path(folder) / "report.html"
        began = time.perf_counter()
        write_html(run, facts, path)
    finally:
        run.close()
    return {"s": time.perf_counter() - began, "mb": peak(), "page_mb": path.stat().st_size / 1e6}


def peak() -> float:
    """Sum of peak memory of this process and of its largest child, in MB."""
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + children) / 1024


def alone(what: Any, folder: Path) -> dict[str, Any]:
    """Run in a process of its own, so that its memory is measured separately."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(what, str(folder)).result()  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=90_000)
    parser.add_argument("--keep", type=Path, help="a folder for the run, used again if a run is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "bench"
        if not (folder / "ledger.db").is_file():
            began = time.perf_counter()
            build(folder.parent, options.n, folder.name)
            print(f"built {options.n:,} accepted results in {time.perf_counter() - began:.0f} s", flush=True)
        alone(bound, folder)  # fill the page cache, so that none of the three measurements includes the disk
        rows = {what.__name__: alone(what, folder) for what in (bound, figures, page)}
    for name, row in rows.items():
        print(f"{name:8} {row['s']:7.2f} s {row['mb']:7.0f} MB")
    found = {
        "figures_s": rows["figures"]["s"],
        "figures_mb": rows["figures"]["mb"],
        "page_mb": rows["page"]["page_mb"],
    }
    short = [name for name, most in LIMITS.items() if found[name] > most]
    result = {
        "n": rows["figures"]["accepted"],
        "cores": os.cpu_count(),
        **{name: round(value, 2) for name, value in found.items()},
        "page_s": round(rows["page"]["s"], 2),
        "bound_s": round(rows["bound"]["s"], 2),
        "of_bound": round(rows["figures"]["s"] / rows["bound"]["s"], 2),
        "short": short,
    }
    print(json.dumps(result))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
