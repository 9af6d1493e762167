"""Every command that opens a pack takes grants, and shows what the pack asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from simia.cli import build_app
from simia.errors import UserError
from tests.sandbox.making import notes_pack

COMMANDS = [
    ["rollout", "PACK", "--agent", "reference"], ["fidelity", "PACK", "--knowledge", "schema"], ["serve", "PACK", "--mcp"],
    ["pack", "validate", "PACK"], ["pack", "gate", "PACK"], ["pack", "record", "PACK"],
]  # fmt: skip
TASK = '{"id": "t", "instruction": "Add a note.", "seed": true, "reward": {"parts": [{"kind": "state"}]}, '
TASK += '"reference": [{"name": "add", "arguments": {"text": "x"}}]}\n'


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    notes_pack(folder, isolation="sandbox")
    (folder / "tasks.jsonl").write_text(TASK)
    (folder / "seeds.jsonl").write_text("")
    return folder


def ask_for(pack: Path, **asked: object) -> None:
    head = yaml.safe_load((pack / "pack.yaml").read_text())
    head |= {"tasks": "tasks.jsonl", "seeds": "seeds.jsonl"}
    head["executable"] |= asked
    (pack / "pack.yaml").write_text(yaml.safe_dump(head))


def simia(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def refused(words: list[str], pack: Path) -> str:
    done = simia(*(str(pack) if word == "PACK" else word for word in words))
    assert isinstance(done.exception, UserError), done.output
    return str(done.exception)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pack_that_asks_is_opened_with_a_grant_only(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maps").mkdir()
    ask_for(pack, needs=[str(tmp_path / "maps")])
    assert f"open it with --grant-read {tmp_path}/maps" in refused(words, pack)
    # The option reaches the back end of each command: it hears of one that is never granted.
    assert refused([*words, "--grant-read", "/etc"], pack).startswith("/etc cannot be granted: /etc as a whole")


def test_a_granted_pack_is_played(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maps").mkdir()
    ask_for(pack, needs=[str(tmp_path / "maps")])
    done = simia("rollout", str(pack), "--agent", "reference", "--grant-read", "maps")
    assert done.exit_code == 0, done.output


def test_show_and_validate_say_what_a_pack_asks_for(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    nothing = simia("pack", "show", str(pack)).output
    assert "needs no network, no environment variables and no files of this machine\n" in nothing
    ask_for(
        pack, needs=[str(tmp_path / "maps"), "maps-0123456789ab", "/home", "/etc/fonts"], network=True, variables=["KEY"],
        python="office",
    )  # fmt: skip
    expected = [
        "asks for network: granted with --network",
        "asks for variable: KEY: granted with --variable KEY",
        "asks for interpreter: office, an environment that simia builds",
        "asks for environment: maps-0123456789ab, in simia's cache",
        f"asks for read: {tmp_path}/maps: granted with --grant-read {tmp_path}/maps",
        "asks for read: /home: never granted: ",
    ]
    for verb in ("show", "validate"):
        lines = [line for line in simia("pack", verb, str(pack)).output.splitlines() if line.startswith("asks for")]
        assert len(lines) == len(expected)
        for line, start in zip(lines, expected, strict=True):
            assert line.startswith(start)
