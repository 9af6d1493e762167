"""What lies in the working directory is no code of simia's: no prompt, config or module is taken from there unasked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simia
from simia import prompts
from simia.amplification.prompt import PromptSettings
from simia.cli import build_app
from simia.cli.train import check_with_trainer
from simia.config import find_config, read_config_file
from simia.errors import UserError
from simia.pack import Pack
from simia.prompts import PromptTemplate
from simia.search_path import data_root, describe_overrides, find_resource
from simia.trainers.launch import Launch

ESCAPES = [
    "{{ cycler.__init__.__globals__.os.popen('touch MARK').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ lipsum.__globals__['os'].system('touch MARK') }}",
    "{{ self.__init__.__globals__.__builtins__.open('MARK', 'w') }}",
    "{% set f = tools.append %}{{ f('more') }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(tools) }}",
    "{{ (tools|attr('__class__')).__name__ }}",
    "{% for i in range(10000000) %}{% endfor %}",
]


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory of others: with prompts, configs, packs and modules of our names."""
    for name, text in {
        "prompts/amplify/request.j2": "THEIRS",
        "configs/amplify/default.yaml": "n: 666\n",
        "configs/prices.yaml": "checked: never\nmodels: {}\n",
        "amplify/default.yaml": "n: 666\n",
        "amplify/request.j2": "THEIRS",
        "seeds/customer_service/pack.yaml": "format: 1\nname: theirs\n",
        "customer_service/pack.yaml": "format: 1\nname: theirs\n",
        "my_pack/pack.yaml": "format: 1\nname: mine\n",
        "orjson.py": "open('MARK', 'w')\n",
        "jinja2.py": "open('MARK', 'w')\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIMIA_PATH", raising=False)
    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()
    yield tmp_path
    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()


@pytest.mark.attack("a prompt template that runs code")
@pytest.mark.parametrize("text", ESCAPES)
def test_a_template_renders_in_a_sandbox(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tools = ["look"]
    with pytest.raises(UserError, match=r"^prompt mine\.j2: ") as refused:
        PromptTemplate("mine.j2", text).render({"tools": tools})
    assert "\n" not in str(refused.value)
    assert tools == ["look"]
    assert not (tmp_path / "MARK").exists()


def test_no_template_renders_outside_of_the_sandbox() -> None:
    sources = {path: path.read_text() for path in Path(simia.__file__).parent.rglob("*.py")}
    assert not [path for path, text in sources.items() if re.search(r"jinja2\.(Environment|Template)\(", text)]


@pytest.mark.attack("prompts, configs and packs of our names in the working directory")
def test_what_lies_in_the_working_directory_is_not_taken_for_ours(cwd: Path) -> None:
    assert find_resource("prompts", PromptSettings().request) == data_root() / "prompts/amplify/request.j2"
    assert find_config("amplify/default") == data_root() / "configs/amplify/default.yaml"
    assert find_resource("configs", "prices.yaml") == data_root() / "configs/prices.yaml"
    assert Pack.load("customer_service").root == data_root() / "seeds/customer_service"
    (cwd / "own.yaml").write_text("extends: amplify/default\n")
    assert read_config_file("own.yaml").get("n") != 666
    (cwd / "own.yaml").write_text("extends: amplify/default.yaml\n")
    assert read_config_file("./own.yaml").get("n") != 666


def test_an_explicit_path_is_taken(cwd: Path) -> None:
    assert Pack.load("./customer_service").name == "theirs"
    assert Pack.load(str(cwd / "customer_service")).name == "theirs"
    assert Pack.load(Path("customer_service")).name == "theirs", "a Path is a path"
    assert Pack.load("my_pack").name == "mine"
    assert read_config_file("configs/amplify/default.yaml") == {"n": 666}
    assert read_config_file("./amplify/default.yaml") == {"n": 666}
    (cwd / "own.yaml").write_text("extends: ./amplify/default.yaml\n")
    assert read_config_file("own.yaml") == {"n": 666}
    assert prompts.read_prompt("./prompts/amplify/request.j2")[0] == "THEIRS"


def test_simia_path_is_taken_and_each_file_is_named(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = describe_overrides()
    assert line.startswith(
        "not used, because simia has a bundled one of the same name: ./customer_service, ./prompts/amplify/request.j2"
    )
    assert "SIMIA_PATH=." in line
    monkeypatch.setenv("SIMIA_PATH", str(cwd))
    assert read_config_file("amplify/default") == {"n": 666}
    assert prompts.read_prompt("amplify/request.j2")[0] == "THEIRS"
    assert Pack.load("customer_service").name == "theirs"
    named = [f"{name} is taken from {cwd} (SIMIA_PATH)" for name in OVERRIDDEN]
    assert describe_overrides()[: len(named)] == named


@pytest.mark.parametrize("place", ["", "seeds"])
def test_in_another_clone_no_file_is_taken_for_an_override(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("simia/search_path.py", "prompts/amplify/request.j2", "configs/amplify/default.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "seeds" / "office").mkdir(parents=True)
    (tmp_path / "seeds" / "office" / "pack.yaml").touch()
    monkeypatch.chdir(tmp_path / place)
    assert describe_overrides() == []
    (tmp_path / "simia" / "search_path.py").unlink()
    assert len(describe_overrides()) == 1


OVERRIDDEN = [
    "prompts/amplify/request.j2",
    "configs/amplify/default.yaml",
    "configs/prices.yaml",
    "seeds/customer_service",
]


@pytest.mark.parametrize("words", [["amplify", "--dry-run", "--seeds", "office"], ["pack", "show", "office"]])
def test_the_first_screen_names_what_is_overridden(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine/prompts/scenario/twists.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("A twist.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMIA_PATH", "mine")
    shown = CliRunner().invoke(build_app(), words)
    assert shown.exit_code == 0, shown.output
    assert "simia: prompts/scenario/twists.txt is taken from mine (SIMIA_PATH)" in shown.stderr.splitlines()


@pytest.mark.attack("modules of our names in the working directory")
def test_the_command_and_its_children_import_nothing_from_the_working_directory(cwd: Path) -> None:
    script = Path(sys.executable).parent / "simia"
    env = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "PYTHONSAFEPATH")}
    done = subprocess.run([script, "amplify", "--dry-run"], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "THEIRS" not in done.stdout
    check_with_trainer(
        Launch([sys.executable], check=[sys.executable, "-c", "import orjson"])
    )  # as each trainer is started
    assert not (cwd / "MARK").exists()


def test_every_child_of_ours_is_started_without_the_working_directory_on_its_path() -> None:
    """Trainers get PYTHONSAFEPATH from `Launch`, for they start processes of their own; all others -P or -I."""
    package = Path(simia.__file__).parent
    bare = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"""(executable|python)\)?, "-[mc]",""", line) and not path.is_relative_to(package / "trainers")
    ]
    # Another environment's Python may be one without -P: pip is started in a new folder there.
    assert [line.partition(":")[0] for line in bare] == ["venvs/import_path.py"]
