"""CodeGym's dialect in a training: the policy sees in RL what it was shown in SFT, token for token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.errors import Code, UserError
from simia.exporting import CardFacts, export
from simia.formats.codegym import write_marked
from simia.trainers.tokens import ChatText
from simia.trainers.trl.start import launch
from simia.trainers.val_environment import StageSettings
from simia.trajectory import ToolCall, Trajectory
from tests.envs.gym_packs import write_gym_pack
from tests.trainers.test_dry_run import dry_run
from tests.trainers.test_tokens import Letters, ids_of

TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


async def test_the_policy_sees_in_rl_what_it_was_trained_on(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym")
    letters = Letters(TURN)  # a template without tools: the dialect brings its own words
    text = ChatText(letters, calls="codegym")
    async with await open_environment(
        str(tmp_path / "gym"), user="none", episode={"calls_per_message": 1}
    ) as environment:
        task = environment.pack.task("easy-01")
        row = await text.open_row(await environment.reset(task))
        for action in task.actions:
            said = write_marked(None, [ToolCall(id="", name=action.name, arguments=action.arguments)])
            assert said is not None
            await text.act(row, ids_of(said))
        trajectory = row.episode.trajectory
        assert row.reward == 1.0
    assert trajectory.end is not None
    assert trajectory.end.code is Code.FINISHED
    export([Trajectory(**dict(trajectory))], tmp_path / "sft", to="codegym", facts=CardFacts())
    messages = json.loads((tmp_path / "sft" / "data.jsonl").read_text())["messages"]
    shown = letters.apply_chat_template(messages, add_generation_prompt=False, tools=None)
    assert letters.decode(row.context) + "\n" == shown
    trained = "".join(letters.decode([i]) for i, kept in zip(row.completion_ids, row.mask, strict=True) if kept)
    assert trained == "".join(turn["content"] + "<|im_end|>" for turn in messages if turn["role"] == "assistant")


async def test_a_second_call_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym")
    letters = Letters(TURN)
    text = ChatText(letters, calls="codegym")
    async with await open_environment(
        str(tmp_path / "gym"), user="none", episode={"calls_per_message": 1}
    ) as environment:
        row = await text.open_row(await environment.reset("easy-01"))
        both = [ToolCall(id="", name="look_up", arguments={"index": index}) for index in (0, 1)]
        await text.act(row, ids_of(write_marked("Both.", both) or ""))
        heard = letters.decode(row.pending)
        assert heard.startswith("\n<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n")
        assert "at most 1 call in a message" in heard
        assert heard.count("<|im_start|>user") == 1
        await row.episode.close()


def test_trls_own_loop_does_not_read_it(tmp_path: Path) -> None:
    write_gym_pack(tmp_path / "gym")
    config: dict[str, Any] = {"model": "m", "stage": {"pack": str(tmp_path / "gym")}, "calls": "codegym"}
    (tmp_path / "x.yaml").write_text(json.dumps({**config, "through": "environment_factory"}))
    with pytest.raises(UserError, match="set through=rollout_func"):
        launch(tmp_path / "x.yaml", {}, dry_run=True)
    assert "calls" not in StageSettings.model_fields, "RAGEN, which has its own context, does not take it"


@pytest.mark.parametrize(
    ("trainer", "section", "most"), [("trl", "stage", "at most 64"), ("verl", "simia.stage", "at most 256")]
)
def test_the_shipped_configs_take_a_folder_of_gyms(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trainer: str,
    section: str,
    most: str,
) -> None:
    for number in range(3):
        write_gym_pack(tmp_path / "gym" / f"gym_{number}", f"gym_{number}")
    monkeypatch.chdir(tmp_path)
    lines = dry_run(capsys, trainer, f"{trainer}/codegym", f"{section}.packs=[gym/*]")
    assert any("on 6 tasks of gym_0+gym_1+gym_2, about 8 turns each" in line and most in line for line in lines), lines
    assert any("on 3 tasks of gym_0+gym_1+gym_2" in line for line in lines), "held-out tasks validate"
    assert any(line == "price: nothing is asked of a model" for line in lines)
