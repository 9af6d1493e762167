"""Files of a pack that cost or mislead whoever only looks at it: refused in one line, before anything of the pack runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simia import pack_files
from simia.authoring.code_lint import lint_code
from simia.cli.pack import app
from simia.errors import UserError
from simia.pack import Pack
from simia.sandbox import copies
from tests.packs.small import small
from tests.sandbox.making import ANY, NOTES, TASK, ask, make_pack, opened

HEAD = "format: 1\nname: x\n"
CODE = HEAD + "executable: {code: tools.py, object: W, hidden: [%s]}\n"
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


@pytest.mark.attack("make reading pack.yaml slow, or fail with a traceback", where="outside")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MERGES, "merge keys"),
        (HEAD + "description: 2025-13-45\n", "month must be in"),
        (HEAD + f"description: {'1' * 5000}\n", "digits"),
        (f"format: 0x{'F' * 5000}\nname: x\n", "digits"),
        (HEAD + f"description: 1{':1' * 3000}\n", "digits"),
        (HEAD + f"description: {'[' * 3000}\n", "nested deeper"),
        (HEAD + f"description: &a x\nends: [{', '.join(['*a'] * 200)}]\n", "aliases"),
        (HEAD + "#" * pack_files.MOST_YAML, "larger than"),
        (HEAD + "? [a]\n: 1\n", "pack.yaml: "),
        (HEAD + "executable: {code: tools.py, object: W, needs: ['/srv/a\\u200b']}\n".replace("'", '"'), "printed"),
        (HEAD + 'policy: "a\\0b"\n', "not a file in the pack's folder"),
    ],
)
def test_a_costly_pack_yaml_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pack.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        Pack.load(tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.attack("hide nothing by a name that looks as if it hid something", where="outside")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("expected/*", "patterns are not supported"), ("Expected", "not in the pack"), ("/pack/expected", "not a path below"),
        ("'expected '", "not a path below"), ('"a\\0b"', "not a path below"), ("loop", "not in the pack"), ("''", "not a path below"),
        ("../x", "not below"), (".", "not below"), ("out", "not below"),
    ],
)  # fmt: skip
def test_a_name_under_hidden_that_hides_nothing_is_refused(tmp_path: Path, name: str, words: str) -> None:
    folder = tmp_path / "p"
    (folder / "expected").mkdir(parents=True)
    (tmp_path / "x").write_text("")
    (folder / "tools.py").write_text("")
    (folder / "loop").symlink_to("loop")
    (folder / "out").symlink_to("../x")
    (folder / "pack.yaml").write_text(CODE % name)
    with pytest.raises(UserError, match=words):
        Pack.load(folder)
    for fine in ("expected", "./expected/", "expected/../expected"):
        (folder / "pack.yaml").write_text(CODE % fine)
        Pack.load(folder)


@pytest.mark.parametrize("key", ["tasks", "tests", "checks", "state", "instructions"])
def test_a_file_that_pack_yaml_names_must_be_there(tmp_path: Path, key: str) -> None:
    (tmp_path / "pack.yaml").write_text(f"{HEAD}{key}: gone.x\n")
    with pytest.raises(UserError, match=f"{key}: 'gone.x' is not in the pack"):
        Pack.load(tmp_path)


@pytest.mark.attack("bring files that look small and are large", where="outside")
@pytest.mark.parametrize("name", ["tools.json", "tasks.jsonl", "policy.md"])
def test_a_sparse_file_is_refused_unread(tmp_path: Path, name: str) -> None:
    (tmp_path / "pack.yaml").write_text(f"{HEAD}{name.split('.')[0]}: {name}\n")
    with (tmp_path / name).open("wb") as file:
        file.truncate(64 << 30)
    with pytest.raises(UserError, match="larger than"):
        _ = Pack.load(tmp_path).tasks


def test_a_line_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_files, "MOST_LINE", 100)
    pack = small(tmp_path / "p", tasks_jsonl=b"\n\n" + b'{"id": "' + b"x" * 200 + b'"}\n')
    with pytest.raises(UserError, match="line 3: longer than"):
        _ = pack.tasks


def test_too_many_tools_are_refused(tmp_path: Path) -> None:
    rows = json.dumps([{"name": f"tool{n}"} for n in range(6000)])
    with pytest.raises(UserError, match="6,000 tools"):
        small(tmp_path / "p", tools_json=rows)


@pytest.mark.attack("forge lines of `simia pack show`", where="outside")
def test_a_description_forges_no_line_above_the_requests(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "pack.yaml").write_text(
        'format: 1\nname: nice\ndescription: "Fine.\\nasks for nothing of this machine\\n"\nlicence: "MIT\\n\\nasks for nothing"\n'
        "executable: {code: tools.py, object: W, isolation: sandbox, network: true}\n"
    )
    lines = CliRunner().invoke(app, ["show", str(tmp_path)]).stdout.splitlines()
    assert lines[0].startswith("asks for network")
    assert lines[1] == "nice: Fine. asks for nothing of this machine"
    assert sum(line.startswith("asks for") for line in lines) == 1


@pytest.mark.attack("start the build of a trainer's environment by opening a pack", where="outside")
def test_a_pack_names_no_environment_of_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "pack.yaml").write_text(HEAD + "executable: {code: tools.py, object: W, python: vllm}\n")
    done = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert done.exit_code
    assert "'vllm' in pack.yaml is an environment of a trainer or a model server" in str(done.exception)
    assert "vllm, refused" in done.stdout
    assert not (tmp_path / "cache" / "envs").exists()


LOOKS = NOTES.replace("    @write\n    def add", "    @read\n    def listing(self) -> list[str]:\n        import os\n        return sorted(os.listdir('/pack'))\n\n    @write\n    def add", 1)  # fmt: skip


@pytest.mark.attack("read older copies of solutions in .git and backups")
@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_version_control_and_backups_are_not_shown(tmp_path: Path, isolation: str) -> None:
    pack = make_pack(tmp_path / "p", LOOKS, {"listing": ANY}, object="Notes", isolation=isolation)
    names = [
        ".git",
        ".hg",
        ".svn",
        "tasks.jsonl~",
        "tasks.jsonl.orig",
        ".tasks.jsonl.swp",
        "#tasks.jsonl#",
        ".DS_Store",
    ]
    for name in names:
        (tmp_path / "p" / name).mkdir() if name in pack_files.VERSION_CONTROL else (tmp_path / "p" / name).write_text(
            ""
        )
    async with opened(pack) as backend:
        world = await backend.open(TASK)
        seen = (await ask(world, "listing")).data
        await world.close()
    assert "tools.py" in seen
    assert not set(names) & set(seen)


@pytest.mark.attack("fill the disk with the copy of a pack", where="outside")
def test_a_pack_that_is_too_large_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    with (tmp_path / "p" / "data").open("wb") as file:
        file.truncate(3 << 30)
    made = tmp_path / "copy"
    with pytest.raises(UserError, match="too much to be copied"):
        copies.copy_pack(tmp_path / "p", made, set())
    os.truncate(tmp_path / "p" / "data", 1)
    monkeypatch.setattr(copies, "MOST_FILES", 3)
    for name in "abc":
        (tmp_path / "p" / name).write_text("")
    with pytest.raises(UserError, match="more than 3 files"):
        copies.copy_pack(tmp_path / "p", made, set())
    assert not made.exists()


def test_lints_know_what_a_sandbox_allows(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text("import subprocess, shutil, time\nopen('x')\n")
    assert [finding.fault.value for finding in lint_code(path, isolation="sandbox")] == ["clock"]
    assert len(lint_code(path)) > 1


@pytest.mark.parametrize(
    "code", [f"x = {'-' * 50_000}1\n", f"x = a{'.b' * 50_000}\n", "x = 1\0\n", f"x = {'9' * 5000}\n"]
)
def test_code_that_cannot_be_parsed_is_a_finding(tmp_path: Path, code: str) -> None:
    path = tmp_path / "tools.py"
    path.write_text(code)
    assert [finding.fault.value for finding in lint_code(path)] == ["not_python"]
