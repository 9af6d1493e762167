"""Every `simia` line that the README shows, run in its order, against a fake endpoint in place of the rented one."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import orjson

from simia import formats
from simia.cli.terminal_output import WAITS
from simia.pack import Pack
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.synthesis.test_recorded_envscaler import RECORDINGS, SMALL

ROOT = Path(__file__).parents[2]


def code_blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    return [code for name, code in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S) if name == language]


def shown() -> list[str]:
    return [line for block in code_blocks("bash") for line in block.splitlines() if line.startswith("simia ")]


def write_seeds(folder: Path) -> None:
    """`my_seeds.jsonl`: the seeds of a bundled pack as OpenAI rows."""
    rows = formats.get("openai")
    seeds = [orjson.dumps(rows.write(seed)) for seed in Pack.load("customer_service").seeds]
    (folder / "my_seeds.jsonl").write_bytes(b"\n".join(seeds))


def prepare_folder(folder: Path) -> None:
    """What the README's commands find in a user's folder: seeds, a pack, and problems for a shell."""
    write_seeds(folder)
    shutil.copytree(ROOT / "seeds" / "customer_service", folder / "my_pack")
    shutil.copytree(ROOT / "examples" / "shell", folder / "examples" / "shell")


def adapt_line(line: str, endpoint: FakeEndpoint, share: int = 10) -> list[str] | None:
    """The words of a line behind `simia`, with the fake endpoint and 1 / share of the trajectories; None where it is tested elsewhere."""
    words = shlex.split(line, comments=True)[1:]
    if "--n" in words:  # what the commands do does not depend on how many they ask for
        words[words.index("--n") + 1] = str(int(words[words.index("--n") + 1]) // share)
    asks = words[0] == "rollout" and any(word.startswith("llm.base_url=") for word in words)
    if (words[0] == "amplify" and "--dry-run" not in words) or asks:
        words += ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.structured=true"]
    elif words[:2] in (["import", "tau2"], ["import", "mcp"]):
        return None  # tests/importers and the pages of docs import and play them; they are downloads
    elif words[:2] == ["rollout", "tau2-retail"] or words[0] == "train":
        return None  # test_training_pages.py starts the trainers
    return words


def test_the_readmes_commands_do_what_it_says(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    lines = shown()
    assert len(lines) >= 9
    try:
        for line in lines:
            if (words := adapt_line(line, endpoint)) is None:
                continue
            done = run_simia(*words, cwd=tmp_path, env={"OPENAI_API_KEY": "not-a-key"})
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        assert (tmp_path / "data/first/train.yaml").is_file()
        assert (tmp_path / "runs/first/report.html").is_file()
        # A key is for the address it was meant for: nothing of it reaches another server, nor the run's files.
        assert not any("not-a-key" in str(request["headers"]) for request in endpoint.requests)
        held = [p for p in (tmp_path / "runs").rglob("*") if p.is_file() and b"not-a-key" in p.read_bytes()]
        assert held == []
    finally:
        endpoint.stop()


def test_the_pages_of_docs_show_commands_that_run(tmp_path: Path) -> None:
    """docs/packs.md to the letter; its import has tests of its own."""
    lines = re.findall(r"^simia .*$", (ROOT / "docs" / "packs.md").read_text(encoding="utf-8"), re.M)
    assert len(lines) >= 6
    for line in lines:
        words = shlex.split(line)[1:]
        if "rollout/shipped" in words:  # all of their tasks take minutes
            words += ["--set", "packs=[{pack: customer_service, limit: 4}, {pack: gyms/*, limit: 1}]"]
        if words[0] != "import":
            done = run_simia(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"


def test_the_page_of_simulated_worlds_shows_commands_that_run(tmp_path: Path) -> None:
    lines = re.findall(r"^simia .*$", (ROOT / "docs" / "simulated.md").read_text(encoding="utf-8"), re.M)
    assert len(lines) >= 4
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        for line in lines:
            words = [*shlex.split(line)[1:], "--set", f"llm.base_url={endpoint.url}"]
            words += ["--set", "sampling.calls=native"]
            done = run_simia(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    finally:
        endpoint.stop()


def test_the_readmes_files_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_page_of_amplification_shows_dry_runs_that_need_no_key(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "amplification.md").read_text(encoding="utf-8")
    write_seeds(tmp_path)
    (two,) = (block for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S) if "mix:" in block)
    (tmp_path / "two.yaml").write_text(two, encoding="utf-8")
    lines = re.findall(r"^simia amplify .*$", page, re.M)  # those of a batch need a run: see test_question_files
    assert len(lines) == 4
    said = []
    for line in lines:
        done = run_simia(*shlex.split(line)[1:], cwd=tmp_path, env={"OPENAI_API_KEY": None})
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        said.append(done.stderr)
    assert "trajectories by gpt-5: 667 requests" in said[1]
    assert "2 seeds of 38 read" in said[3]
    assert list(tmp_path.glob("batch")) == []


def test_the_page_of_synthesis_shows_commands_that_run(tmp_path: Path) -> None:
    """The commands of its own section; the sections of recipes have tests of their own."""
    page = (ROOT / "docs" / "synthesis.md").read_text(encoding="utf-8")
    section = page.partition("## Commands")[2].partition("\n## ")[0]
    shutil.copytree(ROOT / "examples" / "converters", tmp_path / "examples" / "converters")
    endpoint = FakeEndpoint("--respond", "tests.synthesis.converter_replies:respond")
    lines = re.findall(r"^simia .*$", section, re.M)
    assert len(lines) == 6
    try:
        for line in lines:
            words = shlex.split(line)[1:]
            if words[0] == "synth":
                words += ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=gpt-5-mini"]
            done = run_simia(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    finally:
        endpoint.stop()
    packs = [tmp_path / out / "km_to_miles" / "tools.py" for out in ("converters", "converters2")]
    assert packs[0].read_bytes() == packs[1].read_bytes()


def test_the_page_of_synthesis_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "synthesis.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(class Converters:.*?)^```$", page, re.M | re.S)
    assert code in (ROOT / "examples" / "converters" / "recipe.py").read_text(encoding="utf-8")


def test_the_page_of_envfactory_shows_commands_that_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "envfactory.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "tests" / "synthesis" / "fixtures" / "sources" / "documents", tmp_path / "manuals")
    lines = re.findall(r"^simia .*$", page, re.M)
    assert len(lines) >= 2
    for line in lines:
        done = run_simia(*shlex.split(line)[1:], cwd=tmp_path, env={"OPENAI_API_KEY": None})
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        assert "Storage is free for the first 24 hours." in done.stdout


def test_the_page_of_vary_shows_commands_that_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "vary.md").read_text(encoding="utf-8")
    lines = re.findall(r"^simia .*$", page, re.M)
    assert len(lines) == 4
    endpoint = FakeEndpoint("--respond", "tests.synthesis.vary_replies:respond")
    try:
        for line in lines:
            words = shlex.split(line)[1:]
            if words[0] == "synth":
                words += ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=gpt-5-mini"]
            done = run_simia(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
            if "--name" in words:
                assert "easier: 1 variant held, 1 passed the gate together" in done.stdout
    finally:
        endpoint.stop()
    assert Pack.load(tmp_path / "shop2").tasks[-1].id == "cs-010-easier"


def test_the_page_of_your_domain_shows_commands_that_run(tmp_path: Path) -> None:
    """Its first run replays the recorded clinic; the questions of the chat window get one answer that cannot be read."""
    page = (ROOT / "docs" / "your-domain.md").read_text(encoding="utf-8")
    lines = re.findall(r"^simia .*$", page, re.M)
    assert len(lines) >= 20
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "train":
            continue  # test_training_pages.py starts the trainers
        if "limits.max_cost=2" in words:
            replay = ["llm.kind=replay", f"llm.path={RECORDINGS / 'envscaler-clinic.jsonl'}", "llm.match=draw"]
            words += [word for setting in (*replay, *SMALL) for word in ("--set", setting)]
        if words[:2] == ["runs", "answers"]:
            (tmp_path / "q" / "answers" / "001.txt").write_text("Here is the design.", encoding="utf-8")
        done = run_simia(*words, cwd=tmp_path, env={"OPENAI_API_KEY": "not-a-key"})
        waits = "library" in words and "stopped: batch (1 question waits" in done.stdout
        assert done.returncode == (WAITS if waits else 0), f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    assert [len(Pack.load(tmp_path / name).tasks) for name in ("clinic", "clinic2")] == [2, 2]
    assert "This reply cannot be used" in (tmp_path / "q" / "002.txt").read_text(encoding="utf-8")
