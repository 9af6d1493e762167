"""`simia train` up to the point where the trainer takes over, and that it takes over."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from simia.amplification.settings import AmplifyConfig
from simia.cli import build_app, train
from simia.config import load_config
from simia.errors import UserError
from simia.exporting import CardFacts, export
from simia.jobs import Run
from simia.pack import Pack
from simia.trainers.launch import Launch
from tests.cli.conftest import Install
from tests.cli.test_doctor import LLAMAFACTORY

TRL = {"trl": "1.16.0", "torch": "2.13.0", "transformers": "5.23.0", "datasets": "5.2.0", "accelerate": "1.15.0"}
PLAIN = ("--set", "deepspeed=null")
ask = train.check_with_trainer  # the real one, which the fixture below replaces


@pytest.fixture(autouse=True)
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up trainer can be asked nothing; tests/trainers and tests/e2e ask the real ones."""
    monkeypatch.setattr(train, "check_with_trainer", lambda launch: None)


def dry(*arguments: str | Path) -> tuple[list[str], str]:
    """The notes, and the line that would be run."""
    done = CliRunner().invoke(build_app(), ["train", *map(str, arguments), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    *notes, line = done.output.splitlines()
    return notes, line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An exported folder."""
    out = tmp_path / "exported"
    export(Pack.load("office").seeds[:2], out, to="llamafactory", template="qwen", facts=CardFacts())
    return out


@pytest.mark.parametrize("named", ["folder", "file"])
def test_an_exported_folder_is_trained_on_where_it_lies(
    folder: Path, named: str, install: Install, cache: Path
) -> None:
    install(**LLAMAFACTORY)
    config = folder if named == "folder" else folder / "train.yaml"
    notes, line = dry("llamafactory", config, *PLAIN, "--set", "max_steps=5", "--set", "learning_rate=1e-5")
    assert line.startswith(f"cd {folder} && PATH=")
    command = f"{sys.executable} -m llamafactory.cli train train.yaml deepspeed=null max_steps=5 learning_rate=1e-05"
    assert line.endswith(command)
    assert notes[0].startswith("LLaMA-Factory 0.9.5 with transformers 5.6.0")
    assert "flash-attn is not installed" in notes[1]
    assert "PYTHONPATH" not in line, "this environment is its own"


def test_deepspeed_gets_what_it_needs_or_is_refused(folder: Path, install: Install, cache: Path) -> None:
    install(**LLAMAFACTORY)
    with pytest.raises(UserError, match=r"deepspeed is set, and .* lacks it: .* -m pip install deepspeed, or --set"):
        dry("llamafactory", folder)
    install(deepspeed="0.18.2")
    assert "FORCE_TORCHRUN=1" in dry("llamafactory", folder)[1]


def test_an_environment_that_clashes_is_named_with_the_way_out(folder: Path, install: Install, cache: Path) -> None:
    install(**{**LLAMAFACTORY, "transformers": "5.23.0"})
    with pytest.raises(UserError) as refused:
        dry("llamafactory", folder, *PLAIN)
    said = str(refused.value)
    assert "transformers 5.23.0 (llamafactory needs >=4.55.0,!=4.57.0,<=5.6.0)" in said
    assert said.endswith(f"a clean environment: {sys.executable} -P -m simia.venvs llamafactory")
    assert "\n" not in said


def test_a_python_that_is_named_is_asked_itself(folder: Path, tmp_path: Path, install: Install, cache: Path) -> None:
    install(**LLAMAFACTORY)  # of this environment: the other one has nothing
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    with pytest.raises(UserError, match=r"other/bin/python cannot run llamafactory: not installed: llamafactory"):
        dry("llamafactory", folder, *PLAIN, "--python", tmp_path / "other/bin/python")


def test_what_llamafactory_would_stumble_over_later(folder: Path, install: Install, cache: Path) -> None:
    install(**LLAMAFACTORY)
    with pytest.raises(
        UserError, match=r"Qwen/Qwen3-8B needs template qwen3, .* 'qwen': simia export --model qwen3-8b"
    ):
        dry("llamafactory", folder, *PLAIN, "--model", "qwen3-8b")
    with pytest.raises(UserError, match=r"there is no folder ./nowhere"):
        dry("llamafactory", folder, *PLAIN, "--set", "model_name_or_path=./nowhere")
    with pytest.raises(UserError, match=r"'mine' is not in .*dataset_info.json; there are: simia"):
        dry("llamafactory", folder, *PLAIN, "--set", "dataset=mine")
    with pytest.raises(UserError, match=r"is already exported: give segment to a named run"):
        dry("llamafactory", folder, *PLAIN, "--set", "segment=turns")
    (folder / "data.jsonl").write_text("")
    with pytest.raises(UserError, match=r"data.jsonl is empty"):
        dry("llamafactory", folder, *PLAIN)
    (folder / "train.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"train.yaml is not YAML"):
        dry("llamafactory", folder)


def test_checkpoints_of_other_data_are_not_continued(
    folder: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLaMA-Factory would continue from any checkpoint in `output_dir`, without a word."""
    install(**LLAMAFACTORY)
    monkeypatch.setattr(train, "exec_trainer", lambda launch: None)
    checkpoint = folder / "checkpoints" / "checkpoint-50"

    def start(*words: str) -> list[str]:
        """The notes of a dry run and then of a start."""
        notes, _ = dry("llamafactory", folder, *PLAIN, *words)
        CliRunner().invoke(build_app(), ["train", "llamafactory", str(folder), *PLAIN, *words], catch_exceptions=False)
        return notes

    def refused(problem: str) -> AbstractContextManager[object]:
        ways = (
            "name another output_dir, or set overwrite_output_dir=true; to continue anyway, set resume_from_checkpoint"
        )
        line = f"output_dir: {checkpoint} {problem}, and LLaMA-Factory would continue from it: {ways}"
        return pytest.raises(UserError, match=f"^{re.escape(line)}$")

    start()
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    start()  # its own checkpoint
    with refused("was trained with another model"):
        start("--set", "model_name_or_path=Qwen/Qwen2.5-1.5B-Instruct")
    export(Pack.load("office").seeds[:3], folder, to="llamafactory", template="qwen", facts=CardFacts())
    with refused("was trained with other data"):
        start()
    with refused("was trained with other data and another template"):
        start("--set", "template=qwen_nothink")
    start("--set", "output_dir=other")
    start("--set", "resume_from_checkpoint=checkpoints/checkpoint-50", "--set", "output_dir=third")
    start("--set", "overwrite_output_dir=true")
    with refused("is of an earlier training"):
        start()
    (checkpoint / "trainer_state.json").write_text('{"global_step": 50}')
    start()
    later = folder / "checkpoints" / "checkpoint-80"  # of this training, from the named checkpoint on
    start("--set", "resume_from_checkpoint=checkpoints/checkpoint-50")
    later.mkdir()
    (later / "trainer_state.json").write_text("{}")
    start("--set", "resume_from_checkpoint=checkpoints/checkpoint-50")
    start()


def test_a_checkpoint_that_was_named_does_not_make_the_others_this_trainings(
    folder: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(**LLAMAFACTORY)
    monkeypatch.setattr(train, "exec_trainer", lambda launch: None)

    def start(*words: str) -> None:
        words = ("train", "llamafactory", str(folder), *PLAIN, *words)
        CliRunner().invoke(build_app(), words, catch_exceptions=False)

    def save(step: int) -> None:
        place = folder / "checkpoints" / f"checkpoint-{step}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "trainer_state.json").write_text(f'{{"step": {step}}}')

    start()
    save(200)
    export(Pack.load("office").seeds[:3], folder, to="llamafactory", template="qwen", facts=CardFacts())
    start("--set", "overwrite_output_dir=true")
    save(50)
    start("--set", "resume_from_checkpoint=checkpoints/checkpoint-50")
    save(80)
    with pytest.raises(UserError, match=r"checkpoint-200 is of an earlier training"):
        dry("llamafactory", folder, *PLAIN)


def test_checkpoints_without_a_record_are_continued_if_the_data_are_older(
    folder: Path, install: Install, cache: Path
) -> None:
    install(**LLAMAFACTORY)
    checkpoint = folder / "checkpoints" / "checkpoint-9"
    checkpoint.mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-best").mkdir()
    notes, _ = dry("llamafactory", folder, *PLAIN)
    assert f"the training continues from {checkpoint}, which has no record of its data and model" in notes
    os.utime(folder / "data.jsonl", (4e9, 4e9))
    with pytest.raises(UserError, match=r"^output_dir: .*checkpoint-9 is older than the data, and LLaMA-Factory would"):
        dry("llamafactory", folder, *PLAIN)


def test_a_model_of_ones_own_is_found_from_where_one_stands(
    folder: Path, tmp_path: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(**LLAMAFACTORY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    line = dry("llamafactory", "exported", *PLAIN, "--set", "model_name_or_path=mine")[1]
    assert f"model_name_or_path={tmp_path / 'mine'}" in line


@pytest.mark.parametrize(
    ("name", "model", "missing"),
    [
        ("simia-joint", "qwen3-8b", ["tau2-90k: simia amplify -c amplify/tau2-90k --name tau2-90k", "agentbench-15k"]),
        ("seeds-tau", "qwen2.5-7b", ["data/seeds/apigen-mt_5k.json: put the file there"]),
        ("seeds-officebench", "qwen3-8b", ["data/seeds/officebench_1app.jsonl"]),
        ("seeds-agentbench", "qwen3-8b", ["data/seeds/agentinstruct/webshop.json"]),
    ],
)
def test_a_named_run_says_in_a_line_which_data_it_lacks(
    name: str, model: str, missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        dry("llamafactory", name, "--model", model)
    said = str(refused.value)
    assert all(one in said for one in missing)
    assert "--set data=" in said
    assert "\n" not in said


def test_a_named_run_with_data_exports_and_trains(
    tmp_path: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(**LLAMAFACTORY)
    monkeypatch.chdir(tmp_path)
    pack = str(Pack.load("office").root)
    given = ("--set", f"data=[{pack}]", *PLAIN, "--set", "max_steps=5")
    notes, line = dry("llamafactory", "simia-joint", *given)
    assert notes[0] == (
        f"simia-joint: {pack} are exported for qwen3-8b (Qwen/Qwen3-8B, template qwen3) to data/simia-joint-qwen3-8b, "
        "then trained on"
    )
    first, second = line.split(" && ")
    subprocess.run(["sh", "-c", first], check=True, capture_output=True)
    written = yaml.safe_load(Path("data/simia-joint-qwen3-8b/train.yaml").read_text())
    assert written["model_name_or_path"] == "Qwen/Qwen3-8B"
    assert shlex.split(second)[2:8] == ["-P", "-m", "simia", "train", "llamafactory", "data/simia-joint-qwen3-8b"]
    notes, line = dry("llamafactory", "simia-joint", *PLAIN, "--set", "max_steps=5")
    assert "exists and is used" in notes[0]
    assert line.endswith("train train.yaml deepspeed=null max_steps=5")


def test_names_that_nothing_has(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no trainer named 'llama'; there are: llamafactory, trl, verl, ragen"):
        dry("llama", "x")
    with pytest.raises(UserError, match=r"no run is named 'simia-jont'; there are: simia-tau"):
        dry("llamafactory", "simia-jont")
    with pytest.raises(UserError, match=r"no model is named 'gpt'"):
        dry("llamafactory", "simia-joint", "--model", "gpt")
    with pytest.raises(UserError, match=r"simia-tau is run with several models: add --model, one of qwen2.5-1.5b"):
        dry("llamafactory", "simia-tau")
    with pytest.raises(UserError, match=r"--set: segment: expected 'whole' or 'turns', got 'turn'"):
        dry("llamafactory", "simia-joint", "--model", "qwen3-8b", "--set", "segment=turn")
    with pytest.raises(UserError, match=r"--set: reasoning: expected true or false, got 'perhaps'"):
        dry("llamafactory", "simia-joint", "--model", "qwen3-8b", "--set", "reasoning=perhaps")
    (tmp_path / "other.yaml").write_text("a: 1")
    with pytest.raises(UserError, match=r"is not the train.yaml of an exported folder"):
        dry("llamafactory", tmp_path / "other.yaml")
    with pytest.raises(UserError, match=r"--model is for llamafactory and trl"):
        dry("verl", "x", "--model", "m")
    with pytest.raises(UserError, match=r"write it as a.b=value"):
        dry("trl", "trl/grpo", "--set", "steps")


@pytest.mark.parametrize(
    ("trainer", "known"), [("trl", "trl/grpo"), ("verl", "verl/codegym"), ("ragen", "ragen/paper")]
)
def test_a_config_that_is_not_there(trainer: str, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"there is no config 'mine'; configs of {trainer}: .*{known}") as refused:
        dry(trainer, "mine")
    assert "amplify/" not in str(refused.value), "only this trainer's"
    (tmp_path / "mine.yaml").mkdir()
    with pytest.raises(UserError, match=r"mine.yaml is a folder; "):
        dry(trainer, "mine.yaml")


def test_a_program_that_is_no_python(folder: Path, tmp_path: Path, cache: Path) -> None:
    for program in ("/bin/echo", tmp_path):
        with pytest.raises(UserError, match=rf"^{program} is not a Python interpreter that can be run$"):
            dry("llamafactory", folder, *PLAIN, "--python", program)


def test_an_environment_is_needed_and_what_needs_none_is_said_before(
    folder: Path, install: Install, cache: Path
) -> None:
    install(torch="2.13.0")
    with pytest.raises(UserError, match=r"^.* cannot run llamafactory: .*not installed: "):
        dry("llamafactory", folder, *PLAIN)
    (folder / "data.jsonl").write_text("")
    with pytest.raises(UserError, match=r"data.jsonl is empty"):
        dry("llamafactory", folder, *PLAIN)


def test_what_the_trainer_says_is_the_last_line() -> None:
    code = (
        "import sys; print('a warning', file=sys.stderr); print('simia: no such thing', file=sys.stderr); sys.exit({})"
    )
    with pytest.raises(UserError, match=r"^no such thing$"):
        ask(Launch([], check=[sys.executable, "-c", code.format(1)]))
    ask(Launch([], check=[sys.executable, "-c", code.format(0)]))
    with pytest.raises(UserError, match=r"^it does not start$"):
        ask(Launch([], check=["false"]))


def test_a_start_asks_where_the_trainer_would_say_it_late(
    folder: Path, tmp_path: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is exported, above all."""
    install(**LLAMAFACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "check_with_trainer", ask)
    pack = str(Pack.load("office").root)
    for config, more in ((folder, []), ("simia-joint", ["--model", "qwen3-8b", "--set", f"data=[{pack}]"])):
        words = ["train", "llamafactory", str(config), *more, *PLAIN]
        with pytest.raises(UserError, match=r"^LLaMA-Factory does not start in "):  # for it is made up
            CliRunner().invoke(build_app(), words, catch_exceptions=False)
    assert not (tmp_path / "data").exists()


def test_a_named_run_is_exported_in_this_process_and_then_started(
    tmp_path: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(**LLAMAFACTORY)
    monkeypatch.chdir(tmp_path)
    became: list[Launch] = []
    monkeypatch.setattr(train, "exec_trainer", became.append)
    words = ["train", "llamafactory", "simia-joint", "--model", "qwen3-8b", *PLAIN, "--set"]
    pack = str(Pack.load("office").root)
    CliRunner().invoke(build_app(), [*words, f"data=[{pack}]"], catch_exceptions=False)
    assert Path("data/simia-joint-qwen3-8b/data.jsonl").stat().st_size
    assert became[0].command[1:6] == ["-P", "-m", "simia", "train", "llamafactory"]
    given = (*words[1:], f"data=[{pack}]", "--set")
    assert "exists and is used" in dry(*given, "segment=whole")[0][0], "the same settings"
    other = r"^data/simia-joint-qwen3-8b is already exported, and {} may differ there: set out= to another folder, or leave {} out$"
    with pytest.raises(UserError, match=other.format("data", "it")):
        dry(*words[1:], "data=mine.jsonl")
    with pytest.raises(UserError, match=other.format("segment, reasoning", "them")):
        dry(*given, "segment=turns", "--set", "reasoning=false")
    Path("data/simia-joint-qwen3-8b/simia-export.json").unlink()
    with pytest.raises(UserError, match=other.format("data", "it")):
        dry(*words[1:], f"data=[{pack}]")
    # What stands in the way of a new export: nothing that no row came out of.
    (tmp_path / "data/simia-joint-qwen3-8b/data.jsonl").write_text("")
    assert "are exported for" in dry(*words[1:], f"data=[{pack}]")[0][0]
    bare = tmp_path / "bare.jsonl"
    bare.touch()
    with pytest.raises(UserError, match="no row was written"):
        CliRunner().invoke(build_app(), [*words, f"data={bare}", "--set", "out=other"], catch_exceptions=False)
    assert len(became) == 1, "nothing to train on"


def test_runs_that_are_not_finished(
    tmp_path: Path, install: Install, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(**LLAMAFACTORY)
    monkeypatch.chdir(tmp_path)
    run = Run.create(tmp_path / "runs", load_config(AmplifyConfig, "amplify/default", ["n=3"]), name="mine", facts={})
    words = ("llamafactory", "simia-joint", "--model", "qwen3-8b", *PLAIN, "--set", "data=mine")
    try:
        with pytest.raises(UserError, match=r"run mine has no accepted results .*: see simia report mine"):
            dry(*words)
        monkeypatch.setattr("simia.jobs.ledger.Ledger.accepted_count", lambda ledger: 3)
        with pytest.raises(UserError, match=r"3 of 3 accepted, run in progress: .* with --set partial=true"):
            dry(*words)
        run.close()
        unfinished = "3 of 3 accepted, killed before its end: finish it with simia runs resume mine"
        with pytest.raises(UserError, match=unfinished):
            dry(*words)
        assert f"run mine: {unfinished}" in dry(*words, "--set", "partial=true")[0]
        run = Run.open(tmp_path / "runs", "mine")
        run.ledger.set_meta("stopped", {"kind": "complete"})
        run.close()
        assert not any("run mine:" in note for note in dry(*words)[0])
    finally:
        run.close()


def test_trl_from_one_yaml(install: Install, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(**TRL)
    notes, line = dry("trl", "trl/grpo", "--model", "M", "--set", "grpo.max_steps=3", "--set", "stage.user=null")
    assert notes[0] == (
        f"GRPO of M on 16 groups of 16 a step on 54 tasks of customer_service, split train (executable), through TRL's rollout_func ({sys.executable})"
    )
    assert notes[1].startswith("episodes are kept in ")
    assert [note.partition(":")[0].partition(" has ")[0] for note in notes[2:]] == [
        "training",
        "  the longest opening",
        "validation",
        "  the longest opening",
        "user",
        "reward",
        "price",
    ]
    assert notes[-1] == "price: nothing is asked of a model"
    words = shlex.split(line)
    assert words[words.index("-m") + 1] == "simia.trainers.trl.train"
    assert words[-6:] == ["--set", "grpo.max_steps=3", "--set", "stage.user=null", "--set", 'model="M"']
    with pytest.raises(UserError, match=r"unknown key 'stage.pakc': did you mean 'stage.pack'\?"):
        dry("trl", "trl/grpo", "--set", "stage.pakc=x")
    with pytest.raises(UserError, match=r"no pack named 'nowhere'"):
        dry("trl", "trl/grpo", "--set", "stage.pack=nowhere")
    with pytest.raises(UserError, match=r"grpo.use_vllm=false, or through=environment_factory"):
        dry("trl", "trl/grpo", "--set", "grpo.use_vllm=true")
    _, line = dry("trl", "trl/grpo", "--set", "grpo.use_vllm=true", "--set", "grpo.vllm_mode=server")
    assert "grpo.use_vllm=true" in line
    (tmp_path / "empty.yaml").write_text("stage: {pack: office}")
    with pytest.raises(UserError, match=r"model: a value is required"):
        dry("trl", tmp_path / "empty.yaml")


def test_each_trainer_has_a_module_that_launches() -> None:
    from importlib import import_module

    for place in train.TRAINERS.values():
        assert callable(import_module(place).launch)


HEEDING = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)"
"""What a shell started in the background ignores Ctrl-C, and so do its children, if nobody asks for it again."""


def start(code: str, cwd: Path) -> subprocess.Popen[str]:
    """A process that becomes `python -c code`, as `simia train` becomes its trainer."""
    launch = f"Launch([sys.executable, '-c', {code!r}], cwd=Path({str(cwd)!r}), env={{'SAID': 'yes'}})"
    script = f"import sys; from pathlib import Path; from simia.cli.train import exec_trainer, Launch; {HEEDING}; exec_trainer({launch})"
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_trainers_exit_code_folder_and_variables_are_its_own(tmp_path: Path) -> None:
    code = "import os, json, sys; print(json.dumps([os.getcwd(), os.environ['SAID'], os.getpid()])); sys.exit(7)"
    running = start(code, tmp_path)
    said, _ = running.communicate(timeout=240)
    assert running.returncode == 7
    assert json.loads(said) == [str(tmp_path), "yes", running.pid]


def test_ctrl_c_reaches_the_trainer(tmp_path: Path) -> None:
    code = """
import pathlib, time
try:
    pathlib.Path('ready').touch()
    time.sleep(60)
except KeyboardInterrupt:
    print('saved')
    raise SystemExit(3)
"""
    running = start(code, tmp_path)
    patience = time.monotonic() + 240
    while not (tmp_path / "ready").exists() and time.monotonic() < patience:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    said, _ = running.communicate(timeout=240)
    assert (running.returncode, said.strip()) == (3, "saved")


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing-here cannot be started: No such file"):
        train.exec_trainer(Launch([str(tmp_path / "nothing-here")]))
