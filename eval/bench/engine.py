"""Compare our engine with a bare aiohttp client and the `openai` package, against one fake endpoint in its own process.

    python eval/bench/engine.py                # 256 and 1,024 in flight, then an endpoint that admits 128
    python eval/bench/engine.py --quick

The bare client is the lower bound of the cost: aiohttp, orjson, a hash of the request, the usage, a JSONL line per reply. Our engine does
all its work: ledger and reply store on disk, each attempt durable before it is sent and each reply before it is used. Every client runs
in a process of its own with the same event loop (uvloop if it is installed); replies are 6 KB, prompts 4 KB, latency 0.5 s.
Prints a table; the last line is one JSON object; the exit code is 1 if our engine misses a bound: 0.95 of the bare client's rate at 256
in flight, 0.90 at 1,024, 0.4 CPU-seconds for 1,000 replies, 120 MB, and 1.3 times the ideal duration if 128 are admitted.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from endpoint import endpoint

PROMPT = "You write training data for an assistant that works with tools. " * 64  # 4 KB
LATENCY = 0.5
Ask = Callable[[int], Awaitable[bool]]


def messages(i: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": PROMPT}, {"role": "user", "content": f"Write conversation {i}."}]


async def bare(url: str, n: int, inflight: int, folder: Path) -> int:
    import aiohttp
    import orjson

    done, tokens, numbers = 0, 0, iter(range(n))
    with (folder / "replies.jsonl").open("wb") as out:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

            async def worker() -> None:
                nonlocal done, tokens
                for i in numbers:
                    body = orjson.dumps({"model": "bench", "messages": messages(i)})
                    key = hashlib.blake2b(body, digest_size=16).hexdigest()
                    while True:
                        async with session.post(f"{url}/chat/completions", data=body) as response:
                            raw = await response.read()
                        if response.status == 200:
                            break
                        await asyncio.sleep(0.1)
                    reply = orjson.loads(raw)
                    tokens += reply["usage"]["completion_tokens"]
                    out.write(orjson.dumps({"key": key, "text": reply["choices"][0]["message"]["content"]}) + b"\n")
                    done += 1

            await asyncio.gather(*(worker() for _ in range(inflight)))
    return done


async def official(url: str, n: int, inflight: int, folder: Path, **options: Any) -> int:
    import openai
    import orjson

    done, numbers = 0, iter(range(n))
    with (folder / "replies.jsonl").open("wb") as out:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=500, **options) as client:

            async def worker() -> None:
                nonlocal done
                for i in numbers:
                    try:
                        reply = await client.chat.completions.create(model="bench", messages=messages(i))  # type: ignore[arg-type]
                    except openai.APIError:
                        continue  # after its own two retries: lost
                    out.write(orjson.dumps({"i": i, "text": reply.choices[0].message.content}) + b"\n")
                    done += 1

            await asyncio.gather(*(worker() for _ in range(inflight)))
    return done


async def official_aiohttp(url: str, n: int, inflight: int, folder: Path) -> int:
    import openai

    return await official(url, n, inflight, folder, http_client=openai.DefaultAioHttpClient())


async def ours(url: str, n: int, inflight: int, folder: Path) -> int:
    from simia.jobs import Run
    from simia.llm.engine import Engine, EngineLimits
    from simia.llm.openai_backend import OpenAIBackend
    from simia.llm.openai_settings import OpenAISettings
    from simia.llm.types import Request

    done, numbers = 0, iter(range(n))
    limits = EngineLimits(concurrency=inflight, start=inflight, retries=1000)
    run = Run.create(folder, limits, facts={})
    backend = OpenAIBackend(OpenAISettings(model="bench", base_url=url))
    async with Engine(backend, run.ledger, limits) as engine:

        async def worker() -> None:
            nonlocal done
            for i in numbers:
                await engine.ask(Request(messages=messages(i)), item=f"i{i:06d}", draw=f"i{i:06d}.0")
                done += 1

        await asyncio.gather(*(worker() for _ in range(inflight + 64)))  # as in a job, some requests wait
    run.close()
    return done


CLIENTS = {"bare": bare, "simia": ours, "openai": official, "openai+aiohttp": official_aiohttp}


def client(name: str, url: str, n: int, inflight: int) -> None:
    """Run one client's whole load in the child process, and print its figures."""
    for module in ("aiohttp", "orjson", "openai", "simia.llm.openai_backend", "simia.jobs"):
        if module.split(".")[0] in ({"simia": "simia", "bare": "aiohttp"}.get(name, "openai"), "orjson"):
            importlib.import_module(module)  # so that the cost of imports is not measured
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_TMP")) as folder:
        used = time.process_time()
        started = time.perf_counter()
        try:
            import uvloop

            run = uvloop.run
        except ImportError:
            run = asyncio.run
        done = run(CLIENTS[name](url, n, inflight, Path(folder)))
        print(
            json.dumps(
                {
                    "client": name,
                    "seconds": time.perf_counter() - started,
                    "done": done,
                    "cpu_per_1000": 1000 * (time.process_time() - used) / n,
                    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            )
        )


def measure(name: str, n: int, inflight: int, **options: Any) -> dict[str, Any]:
    with endpoint(latency=LATENCY, **options) as (url, counts):
        words = [sys.executable, __file__, "--client", name, "--url", url, "--n", str(n), "--inflight", str(inflight)]
        figures = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    figures["rate"] = figures["done"] / figures["seconds"]
    return figures | {"most_at_once": counts["most"], "refused": counts["refused"]}


def show(title: str, ideal: float, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}: the endpoint could serve {ideal:.0f}/s")
    print(f"{'client':16}{'replies/s':>10}{'of ideal':>10}{'CPU-s/1000':>12}{'peak MB':>9}{'lost':>6}{'429s':>8}")
    for row in rows:
        lost = row["n"] - row["done"]
        print(
            f"{row['client']:16}{row['rate']:>10.0f}{row['rate'] / ideal:>10.2f}{row['cpu_per_1000']:>12.2f}"
            f"{row['rss_mb']:>9.0f}{lost:>6}{row['refused']:>8}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--url")
    parser.add_argument("--n", type=int, default=0)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3, help="repeat each pair of clients and take the best of each")
    parser.add_argument("--quick", action="store_true", help="bare and ours at 256 in flight only, one round")
    args = parser.parse_args()
    if args.client:
        client(args.client, args.url, args.n, args.inflight)
        return 0
    out: dict[str, Any] = {}
    short: list[str] = []
    for inflight, bound in ((256, 0.95),) if args.quick else ((256, 0.95), (1024, 0.90)):
        n = 20 * inflight
        best: dict[str, dict[str, Any]] = {}
        for _ in range(1 if args.quick else args.rounds):
            for name in ("bare", "simia") if args.quick else CLIENTS:
                row = measure(name, n, inflight) | {"n": n}
                if name not in best or row["rate"] > best[name]["rate"]:
                    best[name] = row
        show(f"{inflight} in flight", inflight / LATENCY, list(best.values()))
        ratio = best["simia"]["rate"] / best["bare"]["rate"]
        out[f"of_bare_{inflight}"] = round(ratio, 3)
        out[f"cpu_per_1000_{inflight}"] = round(best["simia"]["cpu_per_1000"], 3)
        out[f"rss_mb_{inflight}"] = round(best["simia"]["rss_mb"])
        if ratio < bound:
            short.append(f"{ratio:.2f} of the bare client at {inflight}, bound {bound}")
        if best["simia"]["cpu_per_1000"] > 0.4:
            short.append(f"{best['simia']['cpu_per_1000']:.2f} CPU-s per 1,000 at {inflight}, bound 0.4")
        if best["simia"]["rss_mb"] > 120:
            short.append(f"{best['simia']['rss_mb']:.0f} MB at {inflight}, bound 120")
    if not args.quick:
        n, admit = 4096, 128
        ideal = n / (admit / LATENCY)
        rows = [measure(name, n, 512, admit=admit) | {"n": n} for name in ("simia", "openai")]
        show("512 in flight, 128 admitted, 429 beyond", admit / LATENCY, rows)
        out["times_ideal_admitted"] = round(rows[0]["seconds"] / ideal, 3)
        out["lost_admitted"] = n - rows[0]["done"]
        if rows[0]["seconds"] > 1.3 * ideal or rows[0]["done"] < n:
            short.append(f"{rows[0]['seconds'] / ideal:.2f} times the ideal where 128 are admitted, bound 1.3")
    for line in short:
        print(f"falls short: {line}")
    print(json.dumps(out | {"falls_short": short}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
