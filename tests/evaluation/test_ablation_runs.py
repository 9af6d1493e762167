"""Ablations that are run: commands, resumption, an arm that fails, results and figure. Trainer and player are stand-in commands, except in the last test."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.ablations.run import Runner, main
from simia.authoring.scaffold import scaffold_pack
from simia.errors import UserError
from simia.jobs import Run

STUDENT = '''
"""Takes the place of eval/loop/student.py: "trains" by writing down its data's size, and "plays" by the size that it was trained on."""
import json, os, sys
words = sys.argv[1:]
folder = os.environ["STAND_IN"]
with open(f"{folder}/calls", "a") as out:
    print(*words[:2], file=out)
if "--data" in words:
    if os.path.exists(f"{folder}/broken") and "two" in words[words.index("--data") + 1]:
        sys.exit("out of memory")
    rows = sum(1 for _ in open(words[words.index("--data") + 1]))
    open(words[words.index("--keep") + 1], "w").write(str(rows))
else:
    rows = int(open(words[1]).read())
    path = words[words.index("--play") + 1].partition("=")[2]
    tasks = {f"t{n}": {"reward": float(n < rows / 5)} for n in range(4)} | {"lost": {"reward": None}}
    json.dump({"tasks": tasks}, open(path, "w"))
'''
PLAN = {
    "title": "One pack or two",
    "source": "s",
    "x": "packs",
    "tiny": {
        "data": ["simia export {packs_of_arm} --to trl --out {data}"],
        "arms": [
            {"name": "one", "line": "packs", "x": 1, "with": {"packs_of_arm": "eval/loop/pack"}},
            {"name": "two", "line": "packs", "x": 2, "data": ["simia export eval/loop/pack seeds/office --to trl --out {data}"]},
            {"name": "two, played again", "line": "again", "x": 2, "of": "two"},
        ],
    },
}  # fmt: skip


def write_plan(folder: Path, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.ablations.ablation.PLANS", folder)
    (folder / "small.yaml").write_text(yaml.safe_dump(plan))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the plan `small`, whose student is a stand-in command."""
    write_plan(tmp_path, PLAN, monkeypatch)
    (tmp_path / "student.py").write_text(STUDENT)
    monkeypatch.setenv("STAND_IN", str(tmp_path))

    def prepare(self: Runner) -> None:
        self.student = [sys.executable, str(tmp_path / "student.py")]

    monkeypatch.setattr(Runner, "prepare", prepare)
    return tmp_path


def read_calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_an_ablation_goes_on_after_an_arm_failed_and_is_drawn_from_its_results(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = folder / "work"
    (folder / "broken").touch()
    with pytest.raises(UserError, match=r"two, train: the command ended with 1: out of memory \(.*/logs/\w+\.log\)"):
        main(["small", "--work", str(work)])
    assert not (work / "results.json").exists(), "no result of some arms alone"
    assert len(read_calls(folder)) == 3  # the first arm's training and play, and the training that failed
    with pytest.raises(UserError, match="no results yet; run the ablation first"):
        main(["small", "--work", str(work), "--draw"])
    (folder / "broken").unlink()
    main(["small", "--work", str(work)])
    words = [call.split()[0] for call in read_calls(folder)]
    assert words == ["learn"] * 6, "of the first arm nothing is run again, and an arm with `of` is only played"
    rows = json.loads((work / "results.json").read_text())["rows"]
    seeds = sum(1 for _ in (work / "data" / "one" / "data.jsonl").open())
    both = sum(1 for _ in (work / "data" / "two" / "data.jsonl").open())
    assert both > seeds == 10
    assert [(row["arm"], row["line"], row["x"], row["seed"], row["suite"]) for row in rows] == [
        ("one", "packs", 1.0, 0, "test"), ("two", "packs", 2.0, 0, "test"), ("two, played again", "again", 2.0, 0, "test"),
    ]  # fmt: skip
    expected = {f"t{n}": float(n < seeds / 5) for n in range(4)}
    assert rows[0]["tasks"] == expected, "a task without a reward is left out"
    assert "test, one: 50.0" in capsys.readouterr().out
    figure = (work / "figure.svg").read_text()
    assert "One pack or two: reward on test (tiny)" in figure
    assert figure.count('<g id="line-') == 2
    (work / "figure.svg").unlink()
    main(["small", "--work", str(work)])
    main(["small", "--work", str(work), "--draw"])
    assert (work / "figure.svg").read_text() == figure
    assert len(read_calls(folder)) == 6, "an ablation that has ended runs nothing again"


def test_another_command_is_run_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["small", "--work", str(folder / "work")])
    before = len(read_calls(folder))
    write_plan(folder, {**PLAN, "tiny": {**PLAN["tiny"], "seeds": 2}}, monkeypatch)  # type: ignore[dict-item]
    main(["small", "--work", str(folder / "work")])
    assert len(read_calls(folder)) == before + 5, "the second seed: two trainings and three plays"
    rows = json.loads((folder / "work" / "results.json").read_text())["rows"]
    assert [row["seed"] for row in rows] == [0, 1] * 3


def test_a_full_size_reads_the_runs_of_simia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No training, two bounds: the rewards of each task come from the runs, and a run without a reward has no row."""
    scaffold_pack(tmp_path / "todos")
    play = f"simia eval packs --pack {tmp_path / 'todos'} --trials 2 --agent {{agent}} --name {{result}}"
    arms = [{"name": agent, "with": {"agent": agent}} for agent in ("reference", "nothing")]
    full = {"suites": ["packs"], "train": [], "evaluate": [play], "arms": arms}
    write_plan(tmp_path, {"title": "Bounds", "source": "s", "full": full}, monkeypatch)
    main(["small", "--size", "full", "--work", str(tmp_path / "work")])
    rows = json.loads((tmp_path / "work" / "results.json").read_text())["rows"]
    assert [(row["arm"], row["suite"], set(row["tasks"].values())) for row in rows] == [
        ("reference", "packs", {1.0}), ("nothing", "packs", {0.0}),
    ]  # fmt: skip
    assert rows[0]["tasks"].keys() == rows[1]["tasks"].keys() != set()
    assert "Bounds: reward on packs (full)" in (tmp_path / "work" / "figure.svg").read_text()


AGENT = '''
"""An agent that does nothing, and kills its process at its third message until the file `repaired` exists."""
import os, pathlib, signal
from simia import Message
FOLDER = pathlib.Path(__file__).parent
def act(view):
    with open(FOLDER / "calls", "a") as out:
        print("act", view.messages[-1].content, file=out)
    if len((FOLDER / "calls").read_text().splitlines()) == 3 and not (FOLDER / "repaired").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return Message(role="assistant", content="done")
'''


@pytest.mark.all
def test_a_rollout_that_was_killed_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process of the rollout is killed between two episodes. The same command plays the others; another command is refused."""
    scaffold_pack(tmp_path / "todos")
    (tmp_path / "agent.py").write_text(AGENT)

    def write(group: int) -> None:
        play = f"simia rollout {tmp_path / 'todos'} --set concurrency=1 --name {{result}} --group {group}"
        own = f"{play} --agent function --set agent_function={tmp_path / 'agent.py'}:act"
        arms = [{"name": "killed", "evaluate": [own]}, {"name": "nothing", "evaluate": [f"{play} --agent nothing"]}]
        plan = {"title": "Killed", "source": "s", "full": {"train": [], "arms": arms}}
        write_plan(tmp_path, plan, monkeypatch)

    write(group=2)
    work = ["--size", "full", "--work", str(tmp_path / "work")]
    with pytest.raises(UserError, match="killed, evaluate: the command ended with -9"):
        main(["small", *work])
    played = len(read_calls(tmp_path))
    assert played == 3
    (tmp_path / "repaired").touch()
    write(group=3)
    with pytest.raises(UserError, match=r"exists: .*made with other settings \(group: 2 → 3\)"):
        main(["small", *work])
    assert len(read_calls(tmp_path)) == played
    write(group=2)
    capsys.readouterr()
    main(["small", *work])
    assert "killed, evaluate: simia runs resume killed-0-test\n" in capsys.readouterr().out
    with closing(Run.read_only(tmp_path / "work" / "runs", "killed-0-test")) as run:
        assert run.verify().complete
        episodes = run.condition().wanted
    assert 0 < len(read_calls(tmp_path)) - played < episodes, "the first episodes are not played again"
    rows = json.loads((tmp_path / "work" / "results.json").read_text())["rows"]
    assert [row["tasks"].keys() for row in rows] == [rows[1]["tasks"].keys()] * 2


@pytest.mark.all
@pytest.mark.usefixtures("environments", "weights")
@pytest.mark.parametrize(
    ("name", "arms"), [("envscaler_environments", ["one", "two"]), ("scaleenv_judge", ["rules", "judge"])]
)
def test_a_tiny_plan_trains_and_plays_for_real(name: str, arms: list[str], tmp_path: Path) -> None:
    """Two arms of SmolLM2-135M, two steps and four test tasks each; in one a local model is the judge, in the trainer's environment."""
    main([name, "--work", str(tmp_path)])
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(row["arm"], len(row["tasks"])) for row in found["rows"]] == [(arm, 4) for arm in arms]
    assert [row["x"] for row in found["rows"]] == ([1.0, 2.0] if name == "envscaler_environments" else [None, None])
    assert all(reward in (0.0, 1.0) for row in found["rows"] for reward in row["tasks"].values())
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    assert "(tiny)" in (tmp_path / "figure.svg").read_text()
