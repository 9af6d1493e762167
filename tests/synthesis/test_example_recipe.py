"""`simia synth` with the recipe of examples/converters against an endpoint: packs, report, recheck, resume, refusals of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.cli.synth import choose_endpoint
from simia.pack import Pack
from simia.synthesis.stage_figures import SynthesisFigures
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.synthesis.build_fixtures import read_files
from tests.synthesis.converter_replies import GOOD, SOURCE

RECIPE = Path(__file__).parents[2] / "examples" / "converters" / "recipe.py"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    server = FakeEndpoint("--respond", "tests.synthesis.converter_replies:respond")
    yield server
    server.stop()


def synth(endpoint: FakeEndpoint, folder: Path, *more: str, source: str = SOURCE) -> list[str]:
    settings = [f"llm.base_url={endpoint.url}", "llm.model=gpt-5-mini"]
    return ["synth", str(RECIPE), source, *(x for s in settings for x in ("--set", s)), *more]


def test_a_recipe_of_a_user_becomes_packs(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    done = run_simia(*synth(endpoint, tmp_path, "--out", "out", "--name", "one"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"packs: {', '.join(str(tmp_path / 'out' / key) for key in GOOD)}"
    record = tmp_path / "out" / "km_to_miles" / "synthesis.json"
    figures = SynthesisFigures.model_validate_json(record.read_bytes())
    (stage,) = figures.stages
    assert (stage.inputs, stage.made, stage.refused, stage.questions) == (5, 3, {"unverified": 2}, 6)
    assert not stage.estimated
    assert stage.cost is not None
    assert stage.cost > 0
    assert {each.key for each in figures.refusals} == {"feet_to_metres", "stones_to_kg"}
    assert run_simia("pack", "validate", str(tmp_path / "out" / "km_to_miles")).returncode == 0
    assert len(Pack.load(tmp_path / "out" / "acres_to_hectares").tasks) == 1

    before, asked = read_files(tmp_path / "out"), endpoint.log()["count"]
    again = run_simia("runs", "resume", "one", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert read_files(tmp_path / "out") == before
    other = run_simia("runs", "resume", "one", "--out", "other", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert read_files(tmp_path / "other") == before
    checked = run_simia("runs", "recheck", "one", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "passed: 3" in checked.stdout
    assert "rejected: 2" in checked.stdout
    run_simia("runs", "resume", "one", "--out", "third", cwd=tmp_path)
    assert read_files(tmp_path / "third") == before
    assert endpoint.log()["count"] == asked, "nothing was asked again"
    again = run_simia(*synth(endpoint, tmp_path, "--out", "third", "--name", "another"), cwd=tmp_path)
    assert again.returncode == 2
    assert "third exists and is not empty" in again.stderr
    assert "run one has written it (simia runs show one)" in again.stderr
    assert "simia runs resume one --out FOLDER" in again.stderr
    (tmp_path / "out" / "km_to_miles" / "policy.md").write_text("changed")
    refused = run_simia("runs", "resume", "one", "--out", "out", cwd=tmp_path)
    assert refused.returncode == 2
    assert "exists and is not empty" in refused.stderr


def test_the_other_commands_read_the_run_or_refuse_it_in_one_line(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    for name in ("one", "two"):
        run_simia(*synth(endpoint, tmp_path, "--out", f"out-{name}", "--name", name), cwd=tmp_path)
    shown = run_simia("runs", "show", "one", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "converters: 2 refused: unverified (execution did not confirm what the model wrote)" in shown.stdout
    assert "to read the replies of one: simia runs show runs/one --item converters/feet_to_metres\n" in shown.stdout
    assert run_simia("report", "one", cwd=tmp_path).stdout == shown.stdout
    (row,) = (line.split() for line in shown.stdout.splitlines() if line.startswith("converters  "))
    assert row[:6] == ["converters", "5", "3", "2", "0", "6"]
    item = run_simia("runs", "show", "one", "--item", "converters/feet_to_metres", cwd=tmp_path)
    assert "refused: unverified: " in item.stdout
    assert "0.3048" in item.stdout
    assert "the first is converters/km_to_miles" in run_simia("runs", "show", "one", "--item", "x", cwd=tmp_path).stderr
    listed = run_simia("runs", "list", cwd=tmp_path)
    assert "complete" in listed.stdout
    diff = run_simia("runs", "diff", "one", "two", cwd=tmp_path)
    assert diff.returncode == 0, diff.stderr
    assert "gc --free" in run_simia("runs", "gc", cwd=tmp_path).stdout + "gc --free"
    rebuilt = run_simia("runs", "rebuild", "one", cwd=tmp_path)
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert "run one is complete" in rebuilt.stdout
    for words, line in (
        (["report", "one", "--html", "p.html"], "--html is not supported for a synthesis run"),
        (["export", "one", "--to", "trl", "--out", "d"], "run one is a synthesis: its results are packs in "),
        (["runs", "resume", "one", "--n", "5"], "--n is not supported for a synthesis"),
        (["judge", "one"], "reads runs of simia amplify, but one is a synthesis"),
    ):
        done = run_simia(*words, cwd=tmp_path)
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert line in done.stderr.splitlines()[-1]


def test_nothing_is_asked_for_a_command_that_cannot_work(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    (tmp_path / "broken.py").write_text("RECIPE = 3")
    unlisted = RECIPE.read_text().replace(
        "self.wanted = [", 'raise UserError("unlisted.csv does not exist")\n        _ = ['
    )
    (tmp_path / "unlisted.py").write_text(f"from simia.errors import UserError\n{unlisted}")
    for words, line in (
        (synth(endpoint, tmp_path, "--out", "taken"), "taken exists and is not empty"),
        (synth(endpoint, tmp_path), "--out is missing"),
        (["synth", "nonsense", "--out", "x"], "no recipe named 'nonsense'"),
        (["synth", "broken.py", "--out", "x"], "defines no RECIPE"),
        (synth(endpoint, tmp_path, "--out", "x", "--set", "sampling.trys=2"), "sampling.trys"),
        (["synth", "unlisted.py", "--out", "x"], "unlisted.csv does not exist"),
        (synth(endpoint, tmp_path, "--out", "taken/file/x"), "is not a folder that can be written to"),
    ):
        done = run_simia(*words, cwd=tmp_path)
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert line in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert endpoint.log()["count"] == 0
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_sends_nothing(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    done = run_simia(*synth(endpoint, tmp_path, "--dry-run"), cwd=tmp_path, env={"OPENAI_API_KEY": None})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--- user ---\nWrite a Python expression")
    assert "Convert: km to miles" in done.stdout
    assert "items known before any reply: converters 5" in done.stderr
    assert "converters: 5 questions, 10,000 prompt and 6,000 reply tokens, $" in done.stderr
    chat = ["--set", "llm.kind=batch", "--set", "llm.model=chat", "--set", "llm.folder=b"]
    done = run_simia("synth", str(RECIPE), "km to miles", "--dry-run", *chat, cwd=tmp_path)
    assert "price: unknown (set llm.price); about $0.00 if gpt-5-mini answered for 1 question" in done.stderr
    assert "an estimate" in done.stderr.splitlines()[-1]
    assert endpoint.log()["count"] == 0
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_a_local_one_unless_an_endpoint_is_named() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({}, {}, {"kind": "embedded"}),
        ({"kind": "openai", "model": "m"}, {}, {"kind": "embedded"}),
        ({"kind": "embedded", "context": 9}, {}, {"kind": "embedded", "context": 9}),
        ({}, {"llm.base_url": "http://x"}, {"kind": "openai", "model": "gpt-5-mini"}),
        ({"kind": "openai", "model": "m"}, {"llm.base_url": "http://x"}, {"kind": "openai", "model": "m"}),
        ({}, {"llm.model": "gpt-5"}, {"kind": "openai", "model": "gpt-5-mini"}),
        ({"kind": "openai", "model": "m"}, {"llm.kind": "replay"}, {"kind": "openai", "model": "m"}),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        for section, given, expected in cases:
            data = {"llm": dict(section)} if section else {}
            choose_endpoint(data, given)
            assert data.get("llm") == expected, (section, given)


def test_no_pack_is_said_with_an_error_code(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan()
    done = run_simia(
        *synth(endpoint, tmp_path, "--out", "out", "--name", "none", source="feet to metres"), cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("no pack: no item passed every stage")
    assert not (tmp_path / "out").exists()


def test_a_model_that_reports_no_tokens_is_estimated(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    endpoint.plan(usage={})
    done = run_simia(*synth(endpoint, tmp_path, "--out", "out", "--name", "e", source="km to miles"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = orjson.loads((tmp_path / "out" / "km_to_miles" / "synthesis.json").read_bytes())
    (stage,) = written["stages"]
    assert stage["estimated"] is True
    assert stage["tokens"]["prompt"] > 50
    assert stage["cost"] is None
    assert set(written) == {"recipe", "model", "stages", "refusals", "notes"}
