"""`simia eval`: bounds on packs, resumption, re-scoring, the page, and the comparison of two runs."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from simia.authoring.scaffold import scaffold_pack
from simia.cli import build_app, terminal_output
from simia.errors import UserError
from simia.evaluation import suites
from simia.evaluation.benchmarks import list_benchmarks
from simia.evaluation.scores import describe_differences
from simia.evaluation.suites import load_suite
from simia.jobs import Run, coordinator
from simia.search_path import data_root
from tests.command import invoke
from tests.envs.gym_packs import write_gym_pack

CONFIGS = sorted(path.stem for path in (data_root() / "configs" / "eval").glob("*.yaml"))


def refuse(*words: str) -> str:
    done = CliRunner().invoke(build_app(), words)
    assert isinstance(done.exception, UserError), done.output
    return str(done.exception)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    scaffold_pack(tmp_path / "todos")
    write_gym_pack(tmp_path / "gym", "gym")
    return tmp_path


def play_both(*words: str) -> None:
    packs = ("--pack", "./todos", "--pack", "./gym", "--trials", "4", *words)
    invoke("eval", "packs", *packs, "--agent", "reference", "--name", "right")
    invoke("eval", "packs", *packs, "--agent", "nothing", "--name", "wrong")


def test_the_reference_scores_one_and_doing_nothing_zero_for_every_k(folder: Path) -> None:
    play_both()
    right, wrong = (json.loads(invoke("report", name, "--json")) for name in ("right", "wrong"))
    figures = ["avg@4", *(f"pass^{k}" for k in (1, 2, 3, 4)), *(f"pass@{k}" for k in (1, 2, 3, 4))]
    for report, value in ((right, 1.0), (wrong, 0.0)):
        assert list(report["scores"]["parts"]) == ["gym", "todos"]
        for part in [*(each["figures"] for each in report["scores"]["parts"].values()), report["scores"]["average"]]:
            assert list(part) == figures
            assert {each["value"] for each in part.values()} == {value}
    assert right["failures"] == []
    assert {value for tasks in right["rewards"].values() for values in tasks.values() for value in values} == {1.0}
    assert {part: len(tasks) for part, tasks in wrong["rewards"].items()} == {
        name: part["tasks"] for name, part in wrong["scores"]["parts"].items()
    }
    episodes = sum(part["episodes"] for part in wrong["scores"]["parts"].values())
    assert wrong["parties"] == {"agent": episodes, "user": 0, "environment": 0, "infrastructure": 0}
    assert [kind["kind"] for kind in wrong["failures"]] == ["calls nothing"]


def test_the_same_stored_results_give_the_same_table(folder: Path) -> None:
    play_both()
    assert invoke("report", "wrong") == invoke("report", "wrong")
    packs = ("--pack", "./todos", "--pack", "./gym", "--trials", "4")
    again = invoke("eval", "packs", *packs, "--agent", "nothing", "--name", "once-more")
    assert again.replace("once-more", "wrong").partition("next:")[0] == invoke("report", "wrong")


def test_two_evaluations_are_compared_on_the_same_tasks(folder: Path) -> None:
    play_both()
    found = json.loads(invoke("eval", "compare", "wrong", "right", "--json"))["differences"]
    assert [(row["part"], row["figure"]) for row in found] == [
        (part, figure) for figure in ("avg@4", "pass^4") for part in ("gym", "todos", "average")
    ]
    assert all(row["difference"]["value"] == 1.0 and row["worse"] == 0 for row in found)
    total = found[2]
    assert total["p"] == pytest.approx(2 / 2 ** total["tasks"])
    assert refuse("eval", "compare", "right", "right") == "right is compared with itself: name another run"
    invoke("eval", "packs", "--pack", "./todos", "--agent", "nothing", "--name", "less")
    assert "have different tasks" in refuse("eval", "compare", "right", "less")
    invoke(
        "eval",
        "packs",
        "--pack",
        "./todos",
        "--pack",
        "./gym",
        "--trials",
        "2",
        "--agent",
        "nothing",
        "--name",
        "twice",
    )
    found = json.loads(invoke("eval", "compare", "right", "twice", "--json"))["differences"]
    assert [row["figure"] for row in found] == ["avg@4, avg@2"] * 3 + ["pass^2"] * 3, (
        "the means are those of all trials"
    )


def test_conditions_are_written_as_in_a_config() -> None:
    settings = {"kinds": ["rate_limit"], "events": 1, "schedule": None}
    assert describe_differences("perturbations", None, settings) == [
        'perturbations: none and {"kinds":["rate_limit"],"events":1}'
    ]
    assert describe_differences("limits", {"turns": 3}, {"turns": None}) == ["limits.turns: 3 and none"]


def test_a_rollout_is_scored_again_by_todays_tasks(folder: Path) -> None:
    play_both()
    assert "episodes with another reward than before: 0\n" in invoke("runs", "recheck", "wrong")
    path = folder / "gym" / "tasks.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["reward"] = {"parts": [{"kind": "answer", "match": "regex", "expect": ["\\S"]}]}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    printed = invoke("runs", "recheck", "wrong")
    assert f"solved: 0 → {4 * len(rows)}" in printed
    report = json.loads(invoke("report", "wrong", "--json"))
    assert report["scores"]["parts"]["gym"]["figures"]["pass^4"]["value"] == 1.0
    assert report["scores"]["parts"]["todos"]["figures"]["pass^4"]["value"] == 0.0
    assert "simia runs recheck" in refuse("eval", "compare", "wrong", "right")
    invoke("runs", "recheck", "right")
    invoke("eval", "compare", "wrong", "right")


def test_an_evaluation_has_a_page_with_examples(folder: Path) -> None:
    play_both()
    invoke("report", "wrong", "--html", "wrong.html")
    page = (folder / "wrong.html").read_text(encoding="utf-8")
    assert "calls nothing" in page
    assert "pass^3" in page
    link = re.search(r'href="#([^"]+)"', page)
    assert link is not None
    assert f'id="{link[1]}"' in page


def test_all_trials_of_accepted_episodes_are_counted(folder: Path) -> None:
    play_both()
    report = json.loads(invoke("report", "right", "--json"))
    assert {part["trials"] for part in report["scores"]["parts"].values()} == {4}
    episodes = report["planned"]
    row = next(line for line in invoke("runs", "list").splitlines() if " right " in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][1:4] == [str(episodes), str(episodes), "0"]
    assert f"accepted: {episodes}\n" in invoke("runs", "recheck", "right")
    assert f"; {episodes} accepted ({episodes // 4} of them different)" in invoke("runs", "show", "right")


@pytest.mark.parametrize("kept", [0, 5])
def test_an_unfinished_evaluation_says_how_many_episodes_and_tasks_there_are(folder: Path, kept: int) -> None:
    invoke("eval", "packs", "--pack", "./todos", "--trials", "4", "--agent", "nothing", "--name", "r")
    with contextlib.closing(Run.open(folder / "runs", "r")) as run:
        planned = run.ledger.meta("facts")["planned"]
        run.ledger.drop_items(kept)
    line = f"r: {kept} of {planned} episodes, {-(-kept // 4)} of {planned // 4} tasks, {kept} scored"
    assert line in invoke("runs", "show", "r")
    assert "avg@4" in invoke("report", "r")


def test_without_a_terminal_lines_tell_the_progress(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_output, "LINE_SECONDS", 0.0)
    words = ["eval", "packs", "--pack", "./todos", "--trials", "4", "--agent", "nothing", "--name", "r"]
    lines = CliRunner().invoke(build_app(), words).stderr.splitlines()
    planned = json.loads(invoke("report", "r", "--json"))["planned"]
    assert f"r: {planned} of {planned} episodes, mean reward 0.000" in lines


def test_lines_tell_the_progress_also_while_no_episode_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_output, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(coordinator, "TICK", 0.05)
    (folder / "slow.py").write_text(
        "import asyncio\nfrom simia import Message\n\n\nasync def act(view):\n"
        "    await asyncio.sleep(1)\n    return Message(role='assistant', content='No.')\n"
    )
    words = ["eval", "packs", "--pack", "./todos", "--trials", "1", "--agent", "slow.py:act", "--name", "r"]
    lines = CliRunner().invoke(build_app(), words).stderr.splitlines()
    planned = json.loads(invoke("report", "r", "--json"))["planned"]
    assert lines.count(f"r: 0 of {planned} episodes") > 3, "and a function of one's own is an agent, as in a rollout"


def test_packs_that_a_limit_leaves_out_are_named(folder: Path) -> None:
    words = ["eval", "packs", "--pack", "./todos", "--pack", "./gym", "--agent", "nothing", "--name", "r", "--limit"]
    assert "limit 1: no task of todos is played" in CliRunner().invoke(build_app(), [*words, "1"]).stderr
    other = ["eval", "packs", "--pack", "./gym", "--agent", "nothing", "--name", "r"]
    assert "packs: ['./todos', './gym'] → ['./gym']" in refuse(*other)
    words[words.index("r")] = "s"
    assert "no task of" not in CliRunner().invoke(build_app(), [*words, "4"]).stderr


def test_an_episode_is_shown_with_its_reward_and_whose_failure_it_is(folder: Path) -> None:
    play_both()
    example = json.loads(invoke("report", "wrong", "--json"))["failures"][0]["examples"][0]
    item = example["item"]
    lines = invoke("runs", "show", "wrong", "--item", item).splitlines()
    assert lines[0].startswith("reward: 0 (")
    assert lines[1].startswith("why: ")
    ended = next(n for n, line in enumerate(lines) if line.startswith("ended: terminated, "))
    assert all(line.startswith("why: ") for line in lines[1:ended])
    assert lines[ended + 1] == f"failure: agent, calls nothing: {example['detail']}"
    shown = invoke("runs", "show", "right", "--item", item)
    assert shown.startswith("reward: 1 (")
    assert "\nwhy: " in shown
    assert "failure:" not in shown


def test_an_item_that_is_not_there_names_one_that_is(folder: Path) -> None:
    play_both()
    known = json.loads(invoke("report", "wrong", "--json"))["failures"][0]["examples"][0]["item"]
    short = known.partition("/")[2]
    assert f"; did you mean {known}? (TASK.N is episode N of a task, from 0)" in refuse(
        "runs", "show", "wrong", "--item", short
    )
    task = short.rpartition(".")[0]
    assert f"; did you mean {known} or " in refuse("runs", "show", "wrong", "--item", task)
    words = refuse("runs", "show", "wrong", "--item", "nothing")
    named = re.search(r"named PART/TASK\.0, .* the first (\S+)\)", words)
    assert named is not None
    invoke("runs", "show", "wrong", "--item", named[1])


def test_commands_that_are_named_find_the_folder_of_runs(folder: Path) -> None:
    words = ("eval", "packs", "--pack", "./todos", "--agent", "nothing", "--name", "r", "--runs", "other")
    for printed in (
        invoke(*words),
        invoke("report", "r", "--runs", "other"),
        invoke("runs", "recheck", "r", "--runs", "other"),
    ):
        named = re.findall(r"simia (?:report|runs show) .*", printed)
        assert named
        for command in named:
            assert "--runs other" in command
            invoke(*command.split()[1:])


def test_a_complete_run_is_not_played_again_and_names_its_report(folder: Path) -> None:
    words = ("eval", "packs", "--pack", "./todos", "--trials", "2", "--agent", "nothing", "--name", "r")
    rollout = ("rollout", "./todos", "--agent", "reference", "--name", "q")
    invoke(*words)
    invoke(*rollout)
    for name, again in (("r", words), ("q", rollout)):
        line = f"run {name} is complete; to show it: simia report {name}\n"
        assert invoke(*again) == line
        assert invoke("runs", "resume", name) == line
        invoke("report", name)
    assert "runs/r exists" in refuse(*words, "--set", "accept=0.5")
    with contextlib.closing(Run.open(folder / "runs", "r")) as run:
        run.ledger.drop_items(1)
        run.ledger.set_meta("stopped", {"kind": "interrupted", "detail": ""})
    assert "runs/r exists" in refuse(*words)
    assert "next: simia report r" in invoke("runs", "resume", "r")


def test_a_wrong_suite_and_no_trials_are_one_line(folder: Path) -> None:
    words = refuse("eval", "pakcs", "--agent", "nothing")
    assert words.startswith("no suite named 'pakcs'; did you mean packs? (there are: acebench, agentbench_os, bfcl, ")
    assert refuse("eval", "packs", "--trials", "0") == "--trials: expected a number of at least 1, got 0"


def test_every_benchmark_has_a_state_and_every_suite_a_config() -> None:
    found = list_benchmarks()
    assert {each.suite for each in found if each.suite} == set(CONFIGS) - {"default"}
    assert all((each.suite is None) == (each.state == "no") for each in found)
    listed = invoke("eval", "--list")
    assert listed == invoke("eval", "list")
    for name in ("WebShop", "Mind2Web", "VitaBench", "MCP-Atlas", "ALFWorld", "ZebraLogic", "MMLU-Pro"):
        assert re.search(rf"{name}.*\n +not supported; ", listed)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_is_read(name: str) -> None:
    config = load_suite(name)
    assert yaml.safe_load(config.model_dump_json())["kind"] == "eval"


PUBLISHED = {  # suite → model and temperature of the user, trials, temperature of the agent, turns, stated by papers, benchmarks and docs/evaluation.md
    "tau2": ("gpt-4.1", 0.0, 4, 0.0, 100),
    "taubench": ("gpt-4.1", 0.0, 5, 0.0, 30),
    "acebench": ("gpt-4o", 0.0, 1, 0.0, 20),
    "bfcl": (None, None, 1, 0.0, 168),
    "officebench": (None, None, 1, 0.0, 40),
    "agentbench_os": (None, None, 1, 0.0, 8),
}
PARTS = {
    "tau2": {"tau2:retail": ["base"], "tau2:airline": ["base"], "tau2:telecom": ["base"]},
    "taubench": {"taubench:retail": ["test"], "taubench:airline": ["test"]},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_suites_have_the_published_conditions(name: str) -> None:
    config = load_suite(name)
    model, heat, *rest = PUBLISHED[name]
    assert (config.player.model if config.player else None) == model
    assert (config.user_settings.temperature if config.player else None) == heat
    assert [config.group, config.sampling.temperature, config.episode.turns] == rest
    assert config.suite == name
    if name in PARTS:
        assert {share.pack: share.tags for share in config.packs} == PARTS[name]


def test_missing_data_are_one_line(folder: Path) -> None:
    words = refuse("eval", "officebench", "--agent", "nothing")
    assert words == "suite officebench needs its data: add --data FOLDER, OfficeBench's folder of tasks (1-1, 1-2, …)"


@pytest.mark.parametrize(
    ("suite", "holds"),
    [
        ("taubench", "tau_bench/envs and no envs"), ("acebench", "data_all/data_en"), ("officebench", "[0-9]*-[0-9]*"),
        ("agentbench_os", "data/[0-9]*/*.json and no *.json"), ("bfcl", "multi_turn_func_doc and no */multi_turn_func_doc"),
    ],
)  # fmt: skip
def test_other_data_are_not_read(folder: Path, suite: str, holds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong folder can be a home or a disk: it was hashed whole, and a file that vanished meanwhile was a traceback."""
    monkeypatch.setattr(suites, "hash_data", lambda path: pytest.fail(f"{path} is read"))
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_text("# No data\n")
    for data in ("notes", "notes/README.md"):
        words = refuse("eval", suite, "--data", data, "--agent", "nothing")
        assert words.startswith(f"{data} has no {holds}: --data names "), words


def test_a_suite_without_data_and_a_file_that_is_no_config_are_one_line(folder: Path) -> None:
    for suite in ("tau2", "packs"):
        assert refuse("eval", suite, "--data", ".") == f"suite {suite} reads no data: leave out --data"
    (folder / "README.md").write_text("# No config\n")
    expected = "README.md is no config: give a suite (see simia eval list) or a YAML file that extends one"
    assert refuse("eval", "./README.md") == f"./{expected}"
    assert refuse("eval", "packs", "--pack", "./README.md") == "README.md is not a pack: give a folder with a pack.yaml"
    words = refuse("eval", "packs", "--pack", "./todos", "--set", "tasks=[todo-1]")
    assert words == "tasks: name them within packs, as --set 'packs=[{pack: ./todos, tasks: [todo-1]}]'"


def play_tau2(*words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Play tau2 by its references and by doing nothing, and return the figures by domain."""
    for agent in ("reference", "nothing"):
        words_of_agent = ("eval", "tau2", *words, "--trials", "1", "--agent", agent, "--name", agent)
        if CliRunner().invoke(build_app(), words_of_agent).exit_code:  # on a busy machine an episode may lose its world
            invoke("runs", "resume", agent)
    found = [json.loads(invoke("report", name, "--json")) for name in ("reference", "nothing")]
    for each in found:
        assert list(each["scores"]["parts"]) == ["airline", "retail", "telecom"]
        unscored = [row for row in each["failures"] if row["party"] != "agent"]
        assert not unscored, "episodes without a reward, or whose world failed"
    right, wrong = (each["scores"]["parts"] for each in found)
    return right, wrong


def count_solved(parts: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Part → solved tasks, scored tasks."""
    return {
        name: (round(part["figures"]["avg@1"]["value"] * part["scored"]), part["scored"])
        for name, part in parts.items()
    }


@pytest.mark.usefixtures("environments")
def test_tau2_by_its_references_and_by_doing_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of the first five tasks of airline, and two of the first 13 of retail, change nothing and ask for no words."""
    monkeypatch.chdir(tmp_path)
    right, wrong = play_tau2("--limit", "30")
    assert count_solved(right) == {"airline": (5, 5), "retail": (13, 13), "telecom": (12, 12)}
    assert count_solved(wrong) == {"airline": (3, 5), "retail": (2, 13), "telecom": (0, 12)}


@pytest.mark.all
@pytest.mark.usefixtures("environments")
def test_all_tasks_of_tau2_by_their_references_and_by_doing_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right, wrong = play_tau2()
    assert count_solved(right) == {"airline": (50, 50), "retail": (114, 114), "telecom": (114, 114)}
    assert count_solved(wrong) == {"airline": (19, 50), "retail": (7, 114), "telecom": (0, 114)}
