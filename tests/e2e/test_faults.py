"""Disks that refuse, clocks that jump, seeds that mean harm: one clear line, and the run intact."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia import formats
from simia.jobs import Run
from simia.pack import Pack
from tests.command import run_simia
from tests.e2e import hostile
from tests.fake_endpoint import FakeEndpoint

GOOD = [orjson.dumps(row) for row in formats.write(Pack.load("customer_service").seeds[:3], "openai")]


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield server
    server.stop()


def simia(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_simia(*words, cwd=cwd)


def simia_alone(*words: str, cwd: Path, before: str = "", limit: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own. `before`: code that runs first; `limit`: the largest file it may write."""
    code = f"{before}\nimport sys; from simia.cli import main; sys.argv = ['simia', *sys.argv[1:]]; main()"
    if limit:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def amplify(url: str, seeds: str, n: int, name: str = "r") -> list[str]:
    settings = [
        f"llm.base_url={url}",
        "llm.model=fake",
        "llm.structured=true",
        "limits.backoff=0.01",
        "limits.concurrency=8",
    ]
    words = ["amplify", "--config", "amplify/default", "--seeds", seeds, "--n", str(n), "--name", name]
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def accepted(folder: Path) -> int:
    run = Run.read_only(folder / "runs", "r")
    try:
        return run.ledger.accepted_count()
    finally:
        run.close()


@pytest.mark.all
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(latency=0.02)
    before = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    words = amplify(endpoint.url, "customer_service", 400)
    full = simia_alone(*words, cwd=tmp_path, before=before, limit=600_000)
    assert full.returncode != 0
    assert "Traceback" not in full.stderr + full.stdout
    assert re.search(r"free disk space and resume|cannot write the run", (full.stderr + full.stdout).replace("\n", " "))
    done = simia("runs", "resume", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert accepted(tmp_path) == 400


@pytest.fixture
def full(endpoint: FakeEndpoint, tmp_path: Path) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """The folder of a run whose disk is full, and the way to a larger one."""
    endpoint.plan(latency=0.02)
    (tmp_path / "runs").mkdir()
    with hostile.mounted(tmp_path / "runs", "-t", "tmpfs", "-o", "size=900k", "none") as again:
        stopped = simia_alone(*amplify(endpoint.url, "customer_service", 600), cwd=tmp_path)
        said = stopped.stdout + stopped.stderr
        assert "Traceback" not in said
        if stopped.returncode == 2:  # a call waited for the disk; where none did, the run says why it stopped
            assert stopped.stderr.strip().splitlines()[-1].startswith("simia: cannot write the run")
        else:
            assert (stopped.returncode, said.count("stopped: disk")) == (1, 1)
        yield tmp_path, again


def test_a_run_on_a_full_disk_is_intact_once_there_is_room(
    full: tuple[Path, Callable[[str], None]], endpoint: FakeEndpoint
) -> None:
    folder, again = full
    again("size=80m")
    run = Run.read_only(folder / "runs", "r")
    held = {reply["key"] for reply in run.ledger.replies()}
    before = attempts(run)
    run.close()
    done = simia_alone("runs", "resume", "r", cwd=folder)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert accepted(folder) == 600
    run = Run.read_only(folder / "runs", "r")
    asked_again = {key for key, count in attempts(run).items() if count > before[key]}
    assert held <= {reply["key"] for reply in run.ledger.replies()}
    run.close()
    assert held
    assert not held & asked_again, "a reply that was received was asked for again"


def attempts(run: Run) -> Counter[str]:
    """How often each sample was put to the endpoint. Prompts may be alike; what is paid for is a sample."""
    return Counter(key for (key,) in run.ledger.db.ledger.execute("SELECT reply_key FROM attempt"))


@pytest.mark.parametrize("words", [["runs", "resume", "r"], ["report", "r"]], ids=" ".join)
def test_a_disk_that_is_still_full_is_one_line(words: list[str], full: tuple[Path, Callable[[str], None]]) -> None:
    assert_one_line(simia_alone(*words, cwd=full[0]))


def assert_one_line(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if not re.match(r"note: run r: |\d+ seeds? of \d+ read", line)]
    assert len(errors) == 1
    assert errors[0].startswith("simia: ")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["runs", "resume", "r", "--n", "6"], id="resume"),
        pytest.param(["runs", "recheck", "r"], id="recheck", marks=pytest.mark.all),
        pytest.param(["runs", "gc", "--free"], id="gc", marks=pytest.mark.all),
        pytest.param(["runs", "list"], id="list", marks=pytest.mark.all),
        pytest.param(["report", "r"], id="report", marks=pytest.mark.all),
        pytest.param(["export", "r"], id="export", marks=pytest.mark.all),
        pytest.param(["amplify", "new"], id="amplify"),
    ],
)
def test_a_folder_that_is_read_only_is_one_line(words: list[str], endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    runs = tmp_path / "runs"
    assert simia(*amplify(endpoint.url, "customer_service", 3), cwd=tmp_path).returncode == 0
    if words[0] == "amplify":
        words = amplify(endpoint.url, "customer_service", 3, name="new")
    with hostile.mounted(runs, "--bind", str(runs)) as again:
        again("ro,bind")
        told = simia_alone(*words, cwd=tmp_path)
    assert_one_line(told)
    done = simia("runs", "resume", "r", "--n", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    assert accepted(tmp_path) == 6


def test_a_folder_that_vanishes_stops_the_run(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(latency=0.1)
    words = [sys.executable, "-m", "simia", *amplify(endpoint.url, "customer_service", 400)]
    child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while endpoint.log()["count"] < 40 and child.poll() is None:
        time.sleep(0.02)
    shutil.rmtree(tmp_path / "runs")
    _, told = child.communicate(timeout=480)
    assert child.returncode == 2
    assert "Traceback" not in told
    assert endpoint.log()["count"] < 400, "it went on asking for what nobody keeps"


WEATHER = ["429:20ms"] * 12 + ["500"] * 2 + ["stall"] * 2 + ["cut"] * 2  # of 45 %: 30, 5, 5 and 5


def test_an_endpoint_in_foul_weather_costs_no_trajectory(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(rate=0.45, mix=WEATHER)
    done = simia(*amplify(endpoint.url, "customer_service", 50), "--set", "llm.timeout=1.5", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert accepted(tmp_path) == 50
    log = endpoint.log()
    met = sum(count for fault, count in log["faults"].items() if fault != "ok")
    assert set(log["faults"]) == {"ok", *WEATHER}
    run = Run.read_only(tmp_path / "runs", "r")
    calls = run.ledger.spent()[1]
    run.close()
    last = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event":"progress"')][-1]
    # A fault is a retry or the end of an attempt; what was on its way when the last one was accepted is let go.
    told = last["retries"] + calls.get("failed", 0)
    assert told <= met <= told + calls.get("sent", 0)
    assert calls["got"] <= log["faults"]["ok"] <= calls["got"] + calls.get("sent", 0)


def test_a_folder_that_cannot_be_written_is_one_line(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    (tmp_path / "runs").write_text("a file in the way")
    done = simia(*amplify(endpoint.url, "customer_service", 3), cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot make the run's folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_vanishes_is_no_traceback(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(latency=0.1)
    words = [sys.executable, "-m", "simia", *amplify(endpoint.url, "customer_service", 2000)]
    child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while endpoint.log()["count"] < 40 and child.poll() is None:
        pass
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    child.send_signal(2)
    said = child.communicate(timeout=480)[0]
    assert "Traceback" not in said


@pytest.mark.all
def test_a_clock_that_jumps_hangs_nothing_and_gives_no_negative_times(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(rate=0.2, mix=["429:10ms", "500"])
    jumping = """
import itertools, time
true, steps = time.time, itertools.cycle([0, 86400, -86400, 3600, -7200])
time.time = lambda: true() + next(steps)
"""
    words = amplify(endpoint.url, "customer_service", 60)
    stopped = simia_alone(*words, "--set", "limits.max_requests=40", cwd=tmp_path, before=jumping)
    assert "stopped: budget" in stopped.stdout
    done = simia_alone("runs", "resume", "r", "--set", "limits.max_requests=null", cwd=tmp_path, before=jumping)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert accepted(tmp_path) == 60
    told = simia("report", "r", cwd=tmp_path)
    assert told.returncode == 0
    assert not re.search(r"(?<![\w-])-\d+(\.\d+)? ?(s|ms|seconds|hours|a minute)\b", told.stdout)


def test_a_second_process_on_a_run_is_refused_and_a_dead_ones_lock_is_taken_over(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    endpoint.plan(latency=10.0)  # the first process must still be at work when the second has started
    words = [sys.executable, "-m", "simia", *amplify(endpoint.url, "customer_service", 60)]
    child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while endpoint.log()["count"] < 8 and child.poll() is None:
        pass
    second = simia("runs", "resume", "r", cwd=tmp_path)
    assert second.returncode == 2
    assert f"is in use by process {child.pid}" in second.stderr.replace("\n", " ")
    child.kill()
    child.wait()
    endpoint.plan()
    assert simia("runs", "resume", "r", cwd=tmp_path).returncode == 0
    assert accepted(tmp_path) == 60


def row(**fields: Any) -> bytes:
    made = orjson.loads(GOOD[0])
    return json.dumps(made | fields).encode()


def with_schema(schema: Any) -> bytes:
    made = orjson.loads(GOOD[0])
    made["tools"][0]["function"]["parameters"] = schema
    return json.dumps(made).encode()


def said(text: str) -> bytes:
    made = orjson.loads(GOOD[0])
    user = next(message for message in made["messages"] if message["role"] == "user")
    user["content"] += text
    return json.dumps(made).encode()


DEEP: dict[str, Any] = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}

BAD = {
    "NUL": b'{"messages": [{"role": "user", "content": "a\\u0000b"}]}',
    "deep nesting": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "broken UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "a lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "not a number": b'{"messages": [{"role": "user", "content": "x"}], "score": NaN}',
    "a remote $ref": with_schema({"$ref": "http://127.0.0.1:PORT/schema.json"}),
    "a file $ref": with_schema({"$ref": "file:///etc/passwd"}),
    "a schema nested 200 deep": with_schema(DEEP),
    "the same tool twice": row(tools=[*orjson.loads(GOOD[0])["tools"], orjson.loads(GOOD[0])["tools"][0]]),
    "no JSON": b"hello",
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_row_is_named_and_the_good_ones_beside_it_are_used(
    name: str, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    endpoint.plan()
    knocks: list[int] = []
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        door.settimeout(0.2)
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                try:
                    door.accept()[0].close()
                    knocks.append(1)
                except TimeoutError:
                    continue

        listener = threading.Thread(target=listen)
        listener.start()
        bad = BAD[name].replace(b"PORT", str(door.getsockname()[1]).encode())
        (tmp_path / "seeds.jsonl").write_bytes(b"\n".join([GOOD[0], bad, GOOD[1], GOOD[2]]) + b"\n")
        dry = simia(*amplify(endpoint.url, "seeds.jsonl", 4), "--dry-run", cwd=tmp_path)
        done = simia(*amplify(endpoint.url, "seeds.jsonl", 4), cwd=tmp_path)
        stop.set()
        listener.join()
    assert "Traceback" not in dry.stderr + done.stderr
    assert (dry.returncode, done.returncode) == (0, 0), done.stderr[-800:]
    assert accepted(tmp_path) == 4
    assert knocks == []
    if name != "the same tool twice":
        assert re.search(r"3 seeds of \d+ read; refused: 1 ", dry.stderr.replace("\n", " ")), dry.stderr


FILES: dict[str, bytes] = {
    "utf16.jsonl": ("\ufeff" + GOOD[0].decode()).encode("utf-16"),
    "zipped.jsonl": gzip.compress(GOOD[0]),
    "empty.jsonl": b"",
    "words.jsonl": b"no json at all\n" * 3,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_one_line(name: str, endpoint: FakeEndpoint, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    done = simia(*amplify(endpoint.url, name, 2), cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("simia: ")


def test_a_row_of_a_hundred_megabytes_is_refused_in_bounded_memory(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    with (tmp_path / "seeds.jsonl").open("wb") as file:
        file.write(GOOD[0] + b'\n{"messages": [{"role": "user", "content": "')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"}]}\n' + GOOD[1] + b"\n")
    # Not `ru_maxrss`, which a process inherits from the one that started it.
    told = "print('PEAK', next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')), file=sys.stderr)"
    peak = f"import atexit, sys\natexit.register(lambda: {told})"
    done = simia_alone(*amplify(endpoint.url, "seeds.jsonl", 3), cwd=tmp_path, before=peak)
    assert done.returncode == 0, done.stderr[-500:]
    assert int(re.findall(r"PEAK (\d+)", done.stderr)[-1]) < 500 * 1024
    assert accepted(tmp_path) == 3


def test_words_that_mean_something_to_us_mean_nothing_in_a_seed(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    tricks = "{{ 7*7 }} [red]x[/red] \x1b[31mred\x1b[0m <b>bold</b><script>alert(1)</script>"
    (tmp_path / "seeds.jsonl").write_bytes(b"\n".join([said(f" By the way: {tricks}"), GOOD[1]]))
    dry = simia(*amplify(endpoint.url, "seeds.jsonl", 2), "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0
    assert "{{ 7*7 }}" in dry.stdout
    assert "\x1b" not in dry.stdout
    done = simia(*amplify(endpoint.url, "seeds.jsonl", 2), cwd=tmp_path)
    told = simia("report", "r", cwd=tmp_path)
    assert done.returncode == told.returncode == 0
    assert "\x1b[31m" not in told.stdout + done.stdout
    assert "<script>alert(1)" not in (tmp_path / "runs" / "r" / "report.html").read_text()


def test_a_catastrophic_expression_in_a_schema_holds_nothing_up(tmp_path: Path) -> None:
    made = orjson.loads(GOOD[0])
    name = next(m["tool_calls"][0]["function"]["name"] for m in made["messages"] if m.get("tool_calls"))
    (tool,) = [tool for tool in made["tools"] if tool["function"]["name"] == name]
    tool["function"]["parameters"]["properties"]["order_id"] = {"type": "string", "pattern": "^(a+)+$|ORD"}
    (tmp_path / "seeds.jsonl").write_bytes(json.dumps(made).encode())
    server = FakeEndpoint("--respond", "tests.e2e.test_faults:catastrophe")
    try:
        done = simia_alone(*amplify(server.url, "seeds.jsonl", 1), "--set", "stop.attempts=6", cwd=tmp_path)
    finally:
        server.stop()
    assert "Traceback" not in done.stderr
    run = Run.read_only(tmp_path / "runs", "r")
    assert set(run.ledger.reasons()) == {"bad_arguments"}
    run.close()


def catastrophe(body: dict[str, Any]) -> str:
    call = {"name": "get_order", "arguments": {"order_id": "a" * 60 + "!", "email": "ana@example.com"}}
    turns = [
        {"role": "user", "content": f"Where is {'a' * 60}!? I'm ana@example.com, {len(str(body))}."},
        {"role": "assistant", "calls": [call]},
        {"role": "tool", "content": {"status": "lost"}},
        {"role": "assistant", "content": "It is lost."},
    ]
    return json.dumps({"messages": turns})


def test_a_complete_amplification_is_not_begun_again(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    words = amplify(endpoint.url, "customer_service", 3)
    assert simia(*words, cwd=tmp_path).returncode == 0
    asked = len(endpoint.requests)
    resume = ["runs", "resume", "r"]
    for again in (words, resume, [*resume, "--n", "3"]):
        done = simia(*again, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "run r is complete; to show it: simia report r\n"), done.stderr
    assert len(endpoint.requests) == asked
    more = simia(*amplify(endpoint.url, "customer_service", 5), cwd=tmp_path)
    assert (more.returncode, "runs/r exists" in more.stderr) == (2, True)
    assert simia(*resume, "--n", "5", cwd=tmp_path).returncode == 0
    assert accepted(tmp_path) == 5
