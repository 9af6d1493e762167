"""No control character of a pack, a model, a server or a config reaches the terminal, and no text is read as markup."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer import Exit

import simia
from simia.amplification.seeds import Seeds
from simia.amplification.session import store_seeds
from simia.amplification.settings import AmplifyConfig
from simia.cli import main
from simia.cli.terminal_output import describe_accepted, name_runs, watch_rollout
from simia.config import load_config
from simia.errors import Code, Issue
from simia.jobs import PASSED, REJECTED, Item, Run
from simia.jobs.progress import Progress
from simia.report.console import Terminal, make_table, print_whole
from simia.report.live_panel import LivePanel
from simia.rollouts.settings import RolloutConfig
from simia.terminal import CONTROL, clean, escape_json, install_output_guard, one_line, say, say_json
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory
from tests.sandbox.making import HEAD, make_pack

STEER = "\x1b]0;OWNED\x07\x1b[2J\x9b31m\x9d52;c;T1dORUQ=\x9c\u202eDENWO\u2066\r\x08\x00[link=https://evil.example]OWNED[/link][/][bold]"
Run_ = Callable[..., str]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run_:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["simia", *words])
        try:
            main()
        except SystemExit:
            pass
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


def check_inert(printed: str) -> None:
    found = CONTROL.findall(printed)
    assert not found, ascii(found)
    assert "OWNED" in printed, "or this test proves nothing"


def hostile_pack(folder: Path) -> Path:
    code = f"{HEAD}\nraise ValueError({STEER!r})\n"
    make_pack(folder, code, {"look": {"type": "object"}})
    head = folder / "pack.yaml"
    head.write_text(head.read_text() + f"\ntasks: tasks.jsonl\ndescription: {json.dumps(STEER)}\n")
    (folder / "tools.json").write_text(
        json.dumps(
            [{"name": "look", "description": STEER, "parameters": {"type": "object", "properties": {STEER: {}}}}]
        )
    )
    task = {"id": "t", "instruction": STEER, "reference": [{"name": "look", "arguments": {STEER: STEER}}]}
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    return folder


def hostile_run(runs: Path) -> None:
    facts = {"model": STEER, "alias": STEER, "prompts": {STEER: "0"}}
    run = Run.create(runs, load_config(AmplifyConfig, "amplify/default", ["n=2"]), name="r", facts=facts)
    story = Trajectory(
        pack=STEER,
        task_id=STEER,
        tools=[ToolSpec(name=STEER)],
        messages=[
            Message(role="user", content=STEER),
            Message(role="assistant", content=STEER, calls=[ToolCall(id="c", name=STEER, arguments={STEER: STEER})]),
            Message(role="tool", call_id="c", name=STEER, content=STEER),
        ],
    )
    store_seeds(run, Seeds(order=[story], refused=[], read=1))
    run.ledger.set_meta("stopped", {"kind": STEER, "detail": STEER})
    for number, status in enumerate((PASSED, REJECTED)):
        item = Item(f"i{number}", number, {"seed": story.id, "task": STEER, "pack": STEER, "pass": 0}, status, STEER)
        run.ledger.plan(item)
        issue = Issue(code=Code.UNPARSABLE, where=STEER, detail=STEER).model_dump(mode="json")
        made = story.to_row() if status == PASSED else None
        run.ledger.conclude(item, f"h{number}", {"trajectory": made, "issues": [issue], "repairs": [STEER]})
        if status == PASSED:
            run.ledger.accept(item, "h0")
    run.ledger.flush()
    run.close()


ATTACK = "control characters of a pack, a model or a server steer the reader's terminal"


@pytest.mark.attack(ATTACK)
@pytest.mark.parametrize(
    "words", ["pack validate bad", "pack show bad", "pack show bad t", "pack gate bad", "rollout bad --agent nothing"]
)
def test_a_hostile_pack_does_not_steer_the_terminal(command: Run_, tmp_path: Path, words: str) -> None:
    hostile_pack(tmp_path / "bad")
    check_inert(command(*words.split()))


@pytest.mark.attack(ATTACK)
@pytest.mark.parametrize(
    "words",
    ["runs list", "runs show r", "runs show r --item i0", "runs show r --item i1", "report r", "runs diff r r --json"],
)
def test_a_hostile_run_does_not_steer_the_terminal(command: Run_, tmp_path: Path, words: str) -> None:
    hostile_run(tmp_path / "runs")
    check_inert(command(*words.split()))


@pytest.mark.attack(ATTACK)
@pytest.mark.parametrize("key", [f"'{STEER.splitlines()[0]}'", "alias"])
def test_a_hostile_config_does_not_steer_the_terminal(command: Run_, tmp_path: Path, key: str) -> None:
    (tmp_path / "evil.yaml").write_text(json.dumps({STEER: STEER, "n": STEER}))
    printed = command("amplify", "--config", "evil.yaml", "--set", "n=1\nsimia: all is well")
    assert not CONTROL.search(printed)
    assert len(printed.splitlines()) == 1, "a message is one line, whatever it quotes"


@pytest.mark.attack(ATTACK)
def test_a_terminal_shows_markup_and_controls_as_text() -> None:
    table = Table(STEER, title=STEER)
    table.add_row(STEER)
    table.add_row(Text(STEER))
    for options in ({"force_terminal": True, "color_system": "truecolor"}, {"no_color": True}):
        console = Terminal(file=io.StringIO(), width=300, **options)
        for each in (STEER, Text(STEER), table, Panel(Text(STEER), title=Text(STEER))):
            console.print(each, style="red")
        console.rule(STEER)
        with console.status(Text(STEER)):
            pass
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        ours = re.sub(r"\x1b\[[0-9;?]*[mlhAK]|\r", "", printed)  # what rich writes itself: style, cursor
        check_inert(ours)
        assert "[link=https://evil.example]OWNED[/link][/][bold]" in ours
        assert "\x1b]" not in printed
        assert "\x1b[2J" not in printed


@pytest.mark.attack(ATTACK)
def test_the_live_panel_shows_controls_as_text() -> None:
    progress = Progress(run=STEER, n=3)
    progress.rejected[STEER] += 1
    progress.stopping = STEER
    for terminal in (True, False):
        console = Terminal(file=io.StringIO(), force_terminal=terminal, width=200)
        with LivePanel(console) as panel:
            panel.update(progress)
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        check_inert(re.sub(r"\x1b\[[0-9;?]*[mlhAK]|\r", "", printed))


@pytest.mark.attack(ATTACK)
def test_tracebacks_and_log_lines_do_not_steer_the_terminal() -> None:
    code = (
        "import logging\nfrom simia.masking import hide\nfrom simia.terminal import install_output_guard\n"
        f"install_output_guard(); hide('sk-0123456789abcdef'); logging.getLogger('x').warning('%s', {STEER!r})\n"
        f"raise ValueError({STEER!r} + 'sk-0123456789abcdef')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240)
    printed = done.stderr.decode()
    check_inert(printed)
    assert "Traceback" in printed
    assert printed.count("OWNED") >= 2
    assert "sk-0123" not in printed.splitlines()[-1]


def test_what_is_harmless_stays() -> None:
    text = "tab\tline\n\N{ROCKET} é 漢字 [x] :smile: 100 %"
    assert clean(text) == text
    assert clean("a\r\nb") == "a\nb"
    assert one_line(" a\n\tb\x1b[0m ") == "a b\N{REPLACEMENT CHARACTER}[0m"
    value = {"a": STEER, "b": [1, text]}
    written = escape_json(orjson.dumps(value).decode())
    assert json.loads(written) == value
    assert not CONTROL.search(written)


def test_no_module_prints_by_itself() -> None:
    """Output passes `simia.terminal` and `simia.report.console`; whatever speaks to another program is listed here."""
    package = Path(simia.__file__).parent
    speaks_to_a_program = {
        "terminal.py",
        "report/console.py",
        "llm/embedded_server.py",  # its parent reads the address
        "trainers/llamafactory_check.py",  # runs in an environment without simia
    }
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name in speaks_to_a_program or name.startswith("sandbox/inside/") or "_world" in name:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print",
                "Console",
                "typer.echo",
                "click.echo",
            ):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node.func)}")
    assert not found, found


def test_version_needs_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "simia", "--version"], capture_output=True, text=True, check=False
    )
    python = platform.python_version()
    assert done.returncode == 0
    assert done.stdout == f"{simia.__version__} (Python {python}, {platform.system()} {platform.machine()})\n"


@pytest.mark.parametrize("made", [False, True])
def test_an_interrupt_before_the_first_episode_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: bool
) -> None:
    async def prepare(**options: object) -> NoReturn:
        if made:
            Run.create(tmp_path, load_config(RolloutConfig, "rollout/default", []), name="r", facts={}).close()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
        raise AssertionError

    with pytest.raises(Exit) as ended:
        watch_rollout(prepare, tmp_path)
    assert ended.value.exit_code == 130
    printed = capsys.readouterr()
    if made:
        assert printed.out == f"next: simia runs resume r --runs {tmp_path}\n"
        assert "what was stored is kept" in printed.err
    else:
        assert "no run was made, and nothing was asked or played" in printed.err


@pytest.mark.parametrize("encoding", ["euc_jp", "shift_jis", "ascii"])
def test_characters_that_the_terminal_cannot_show_are_replaced(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding=encoding))
    install_output_guard()
    say("größe مرحبا ok")
    say("größe مرحبا ok", error=True)
    Terminal().print("größe مرحبا ok")
    say_json('{"name": "größe 😀"}')
    sys.stdout.flush()
    shown, table, row = out.getvalue().decode(encoding).splitlines()
    assert shown == table == "größe مرحبا ok".encode(encoding, "replace").decode(encoding)
    assert shown.endswith("e ????? ok")
    assert json.loads(row) == {"name": "größe 😀"}
    assert err.getvalue().endswith(b"e ????? ok\n")


def test_a_table_in_a_log_is_not_cut() -> None:
    def write(**options: Any) -> list[str]:
        out = io.StringIO()
        table = make_table("part", ">avg@3", "example")
        table.add_row("a_part_with_a_long_name", "0.000 [0.00, 0.79]", "one example with more words than fit")
        print_whole(table, Terminal(file=out, width=40, **options))
        return out.getvalue().splitlines()

    _, row = write()
    assert row.split("  ") == [
        "a_part_with_a_long_name", "0.000 [0.00, 0.79]", "one example with more words than fit", "",
    ]  # fmt: skip
    assert len(write(force_terminal=True)) > 2, "on a terminal it fits the width"


def test_the_line_of_a_stop_says_why_items_were_rejected() -> None:
    rejected = Counter({"unparsable": 2, "leak": 1})
    assert describe_accepted(Progress("r", n=11, accepted=9)) == "9 of 11 accepted, "
    assert describe_accepted(Progress("r", n=11, accepted=9, rejected=rejected)) == (
        "9 of 11 accepted, 3 rejected (unparsable 2, leak 1), "
    )


def test_the_next_command_names_a_folder_of_runs_unless_it_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_runs(Path("runs")) == ""
    assert name_runs(Path("other runs")) == " --runs 'other runs'"
    monkeypatch.setenv("SIMIA_RUNS", "/data/runs")
    assert name_runs(Path("/data/runs")) == ""
    assert name_runs(Path("runs")) == " --runs runs"
