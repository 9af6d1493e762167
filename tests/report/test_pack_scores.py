"""The table by pack of a rollout over several packs."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.config import load_config
from simia.jobs import Run
from simia.report.evaluation_report import collect_evaluation, list_facts
from simia.rollouts.settings import RolloutConfig
from simia.search_path import data_root, list_names
from simia.terminal import write_count
from tests.command import invoke
from tests.envs.gym_packs import write_gym_pack
from tests.fake_endpoint import FakeEndpoint


def read_rows(output: str) -> dict[str, list[str]]:
    """Pack → tasks, solved, mean reward, and the rest of the row."""
    form = r"^(\S+) +(\d+) +(\d+ of \d+) +(\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]) +(.*?) *$"
    return {name: list(rest) for name, *rest in re.findall(form, output, re.M)}


def test_one_command_gives_a_row_for_each_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scaffold_pack(tmp_path / "todos")
    write_gym_pack(tmp_path / "gym", "gym")
    packs = ["--set", "packs=[./todos, ./gym]", "--group", "2"]
    printed = invoke("rollout", *packs, "--agent", "reference", "--name", "right")
    rows = read_rows(printed)
    assert list(rows) == ["gym", "todos", "all"]
    for name, ending in (("gym", "finished"), ("todos", "user_stop")):
        tasks = int(rows[name][0])
        assert rows[name][1] == f"{2 * tasks} of {2 * tasks}"
        assert rows[name][2].startswith("1.000 [")
        assert rows[name][3] == f"{ending} {2 * tasks}"
    assert int(rows["all"][0]) == sum(int(rows[name][0]) for name in ("gym", "todos"))
    assert read_rows(invoke("report", "right")) == rows
    nothing = read_rows(invoke("rollout", *packs, "--agent", "nothing", "--name", "wrong"))
    assert {row[1].partition(" ")[0] for row in nothing.values()} == {"0"}


def test_a_rollout_of_one_pack_has_no_such_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scaffold_pack(tmp_path / "todos")
    assert "mean reward" in (printed := invoke("rollout", "./todos", "--agent", "reference"))
    assert not read_rows(printed)


def test_the_cost_of_all_roles_is_that_of_the_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scaffold_pack(tmp_path / "a")
    scaffold_pack(tmp_path / "b")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    endpoint.plan(usage={"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000})
    settings: dict[str, Any] = {
        "packs": "[{pack: ./a, limit: 1}, ./b]",
        "backend": "simulated",
        "user": "llm",
        "llm": f"{{kind: openai, base_url: '{endpoint.url}', model: m, price: {{input: 1, cached: 1, output: 1}}}}",
        "sampling.calls": "native",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    try:
        rows = read_rows(invoke("rollout", *words, "--name", "priced"))
        asked = len(endpoint.requests)
    finally:
        endpoint.stop()
    costs = {name: float(row[3].partition("$")[2]) for name, row in rows.items()}
    assert costs["all"] == asked
    assert costs["a"] + costs["b"] == asked
    assert 0 < costs["a"] < costs["b"]


def test_an_evaluation_says_how_many_replies_its_cost_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has a price, the user has none."""
    monkeypatch.chdir(tmp_path)
    scaffold_pack(tmp_path / "a")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    endpoint.plan(usage={"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000})
    model = f"kind: openai, base_url: '{endpoint.url}'"
    settings: dict[str, Any] = {
        "user": "llm",
        "llm": f"{{{model}, model: m, price: {{input: 1, cached: 1, output: 1}}}}",
        "player": f"{{{model}, model: p}}",
        "sampling.calls": "native",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    try:
        invoke("rollout", "./a", "--limit", "1", *words, "--name", "priced")
        of_user = sum(request["body"]["model"] == "p" for request in endpoint.requests)
        priced = len(endpoint.requests) - of_user
    finally:
        endpoint.stop()
    with closing(Run.read_only(Path("runs"), "priced")) as run:
        report = collect_evaluation(run)
    assert of_user > 0
    assert (report.cost, report.unpriced) == (priced, of_user)
    (cost,) = (value.partition("cost ")[2] for name, value in list_facts(report) if name == "models")
    assert cost == f"${priced}.00, and {write_count(of_user, 'reply')} of unknown price"


def test_the_shipped_config_names_every_shipped_pack() -> None:
    config = load_config(RolloutConfig, "rollout/shipped")
    assert sorted(share.pack for share in config.packs or []) == list_names("seeds", [data_root()])
