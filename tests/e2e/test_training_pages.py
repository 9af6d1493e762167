"""Every `simia train` line that the README and the pages on training show, up to the point where it would train for hours."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import run_simia
from tests.tau_seeds import write_apigen_seeds
from tests.trainers import ragen_standin

ROOT = Path(__file__).parents[2]
SIMULATOR = "docs/train-a-simulator.md"
PAGES = ("README.md", "docs/training.md", "docs/verl.md", "docs/ragen.md", "docs/vllm.md", SIMULATOR)
# What a line lacks on a machine without the paper's data, GPUs, verl and RAGEN's environment, and says in one line.
LACKS = {
    "simia-joint": "needs data that are not here",
    "simia-tau": "my-run",
    "verl": r"cannot run verl: not installed: verl, .*a clean environment: ",
    "ragen": r"cannot run ragen: not installed: .*vllm.*a clean environment: .*setup_ragen\.sh",
}


def shown() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
        found += [(page, line) for line in re.findall(r"^simia train .*$", text, re.M)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with what the pages begin with: an exported folder and a pack."""
    root = tmp_path_factory.mktemp("pages")
    seeds = ROOT / "seeds" / "customer_service"
    (root / "my_pack").symlink_to(seeds)
    simia(root, "export", str(seeds), "--to", "llamafactory", "--out", "data/first")
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^simia (pack new .*)$", page, re.M)
    simia(root, *line.split())
    return root


@pytest.fixture(scope="module")
def for_ragen(folder: Path) -> dict[str, str]:
    """What docs/ragen.md does before it trains: a checkout (its settings are those recorded from RAGEN), and packs that it imports."""
    page = (ROOT / "docs" / "ragen.md").read_text(encoding="utf-8")
    lines = re.findall(r"simia (import tau2 \w+|pack new .*)", page)
    assert len(lines) == 3
    write_apigen_seeds(folder / "data" / "seeds" / "apigen-mt_5k.json")
    for line in lines:
        simia(folder, *line.split())
    return {"RAGEN_HOME": str(ragen_standin.write_checkout(folder / "RAGEN"))}


@pytest.fixture(scope="module")
def for_simulator(folder: Path) -> None:
    """What docs/train-a-simulator.md does before it trains: it plays a pack, of which some episodes are enough here, and exports the calls."""
    page = (ROOT / SIMULATOR).read_text(encoding="utf-8")
    [play] = re.findall(r"^simia (rollout .* --agent reference --name played)$", page, re.M)
    [export] = re.findall(r"^simia (export played .* --out data/simulator)\b", page, re.M)
    simia(folder, *play.split(), "--limit", "12")
    simia(folder, *export.split())


def simia(folder: Path, *words: str, code: int = 0, **variables: str) -> str:
    env = {"OPENAI_API_KEY": "not-a-key", "NO_COLOR": "1", **variables}
    done = run_simia(*words, cwd=folder, env=env)
    assert done.returncode == code, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize(("page", "line"), shown())
def test_a_line_is_ready_to_train_or_says_what_it_lacks(
    page: str,
    line: str,
    folder: Path,
    tmp_path: Path,
    environments: Callable[[str], Path],
    request: pytest.FixtureRequest,
) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = [word for word in words if word != "--dry-run"]
    if "--python" in words:
        words[words.index("--python") + 1] = sys.executable
    lacks = next((says for name, says in LACKS.items() if name in words[1:3]), None)
    if (
        words[1:3] in (["llamafactory", "data/first"], ["llamafactory", "data/simulator"])
        and "deepspeed=null" not in words
    ):
        lacks = "lacks it.*pip install deepspeed"
    unbuilt = words[1] in ("verl", "ragen") and "--python" not in words  # a dry run is green all the same
    lacks = None if unbuilt else lacks
    variables: dict[str, str] = {}
    if page == SIMULATOR:
        request.getfixturevalue("for_simulator")
    if words[1] == "ragen":
        variables = request.getfixturevalue("for_ragen")
    elif words[1] == "verl":  # its environment is built by make test-all: this test is not to find it
        variables = {"SIMIA_CACHE": str(tmp_path)}
    else:
        environments(words[1])
    said = simia(folder, *words, "--dry-run", code=0 if lacks is None else 2, **variables)
    if lacks is None:
        assert "python" in said
        assert ("there is no command yet" in said and "price: about $" in said) is unbuilt
    else:
        assert re.search(lacks, said), said
        assert said.count("\n") == 1, said


def test_a_dry_run_asks_trl_itself(folder: Path, environments: Callable[[str], Path]) -> None:
    environments("trl")
    said = simia(folder, "train", "trl", "trl/grpo", "--set", "grpo.max_step=2", "--dry-run", code=2)
    assert "grpo.max_step: GRPOConfig has no such field; did you mean 'max_steps'?" in said
    said = simia(folder, "train", "trl", "trl/grpo", "--set", "grpo.num_generations=3", "--dry-run", code=2)
    assert "generation_batch_size (256) must be divisible by num_generations (3)" in said


def test_the_pages_show_lines() -> None:
    assert len(shown()) >= 8
