"""Tasks of format 2 out of several packs through TRL's GRPOTrainer: revealed tools, withheld facts, goals and penalties, executed and
simulated."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.envs.opening import open_environment
from simia.trajectory import Message, Trajectory
from tests.envs.test_new_tasks_by_model import KINDS
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import lamps
from tests.trainers.conftest import Trainer
from tests.trainers.test_trl_grpo import spans

PROBE = Path(__file__).with_name("new_tasks_probe.py")


def write_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = [
    ("<tool_response>", "Done: 'Water the plants' and 'Buy milk' are open."),
    ("tools are now available", write_call("add_todo", text="Buy milk")),
    ("Something new", "What should I add?"),
    ("What is open?", write_call("list_todos", open_only=True)),
    ("plants are watered", write_call("finish_todo", todo_id="T-1001")),
    ("'Buy milk' on my list", "\n".join([write_call("list_todos"), write_call("add_todo", text="Buy milk")])),
    ("milk", write_call("add_todo", text="Buy milk")),
    *((f"the {lamp} lamp on", write_call("switch", lamp=lamp, on=True)) for lamp in lamps.LAMPS),
]
"""Words of the user's last message → the policy's reply."""


def respond(body: dict[str, Any]) -> str:
    """For the fake endpoint: every call has a result, and an episode with the wanted call is solved."""
    last = str(body["messages"][-1]["content"])
    if str(body["messages"][0]["content"]).startswith("You judge"):
        happened = last.split("# What happened")[1].replace(" ", "")
        solved = '"text":"Buymilk"' in happened or '"on":true' in happened
        return json.dumps({"why": "looked at the calls", "solved": solved})
    count = last.split("# Calls to answer now")[1].strip().count("\n") + 1
    rows = [{"call": n + 1, "outcome": "result", "content": {"ok": True}, "changes": []} for n in range(count)]
    return json.dumps({"answers": rows})


@pytest.fixture(scope="module", params=["executable", pytest.param("simulated", marks=pytest.mark.all)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("packs")
    scaffold_pack(root / "todo")
    rows = [{"id": kind, **fields} for kind, fields in KINDS.items()]
    (root / "todo" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lamps.write(root / "errands", lamps.errands())
    shares = [{"pack": str(root / "todo"), "weight": 2}, {"pack": str(root / "errands"), "weight": 1}]
    found: dict[str, Any] = {"packs": shares, "user": "none", "backend": request.param}
    if request.param == "executable":
        yield found
        return
    endpoint = FakeEndpoint("--respond", "tests.trainers.test_trl_new_tasks:respond")
    yield {**found, "llm": {"kind": "openai", "model": "fake", "base_url": endpoint.url}, "limits": {"retries": 0}}
    endpoint.stop()


@pytest.fixture(scope="module")
def told(
    trl: Trainer, taught_model: Path, stage: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What three steps of GRPO were made of."""
    folder = tmp_path_factory.mktemp("new_tasks")
    (folder / "plan.json").write_text(json.dumps({"stage": stage, "replies": REPLIES}))
    trl.run(PROBE, taught_model, folder / "plan.json", folder / "out.json")
    return dict(json.loads((folder / "out.json").read_text()))


def list_rows(told: dict[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Step, place in the step, and trajectory of each episode."""
    for step, episodes in enumerate(told["episodes"]):
        for place, episode in enumerate(episodes):
            yield step, place, episode


async def test_all_tasks_of_both_packs_earn_their_environments_rewards(
    told: dict[str, Any], stage: dict[str, Any]
) -> None:
    todo = [f"todo/{kind}" for kind in KINDS]
    assert sorted(told["tasks"]) == sorted([*todo, "errands/errand-0", "errands/errand-1"])
    played = [task for rows in told["rolled"] for task in rows["task_id"]]
    assert sorted(played) == sorted(told["tasks"] * 4), "each task is a group of four"
    for step, place, episode in list_rows(told):
        pack, _, _ = episode["task_id"].partition("/")
        assert (episode["pack"], episode["task_id"]) == (pack, told["rolled"][step]["task_id"][place])
        assert told["rolled"][step]["reward"][place] == episode["reward"]["value"]
        if place % 2 == 0:
            earned = 0.9 if episode["task_id"] == "todo/penalty" else 1.0  # one call more than is free
            assert episode["reward"]["value"] == earned, (episode["reward"], episode["messages"])
    assert all(math.isfinite(loss) for loss in told["losses"])
    assert all(any(value != 0 for value in batch["advantages"]) for batch in told["batches"]), "groups differ"
    if stage["backend"] == "executable":
        async with await open_environment(stage) as environment:
            for _, _, episode in list_rows(told):
                await check_reward(environment, Trajectory.model_validate(episode))


async def check_reward(environment: Any, played: Trajectory) -> None:
    """Play the policy's messages again, in this process: the reward is the same."""
    assert played.task_id is not None
    episode = await environment.reset(played.task_id)
    for message in played.messages:
        if message.role == "assistant" and episode.end is None:
            await episode.step(Message(role="assistant", content=message.content, calls=message.calls))
    if episode.end is None:  # the policy's last message was cut
        assert played.end.kind == "truncated"
        await episode.close()
        return
    assert played.reward is not None
    assert episode.reward.value == played.reward.value


def test_tokens_are_only_appended(told: dict[str, Any]) -> None:
    for step, place, episode in list_rows(told):
        rows, batch = told["rolled"][step], told["batches"][step]
        drawn = [(tuple(context), ids) for context, ids in told["sampled"][step]]
        prompt, ids, mask = rows["prompt_ids"][place], rows["completion_ids"][place], rows["env_mask"][place]
        assert (batch["prompts"][place], batch["completions"][place]) == (prompt, ids)
        assert batch["trained"][place] == [[at, ids[at]] for at, m in enumerate(mask) if m]
        turns = spans(mask)
        assert len(turns) == sum(message["role"] == "assistant" for message in episode["messages"])
        for start, end in turns:
            assert (tuple(prompt + ids[:start]), ids[start:end]) in drawn, "sampled behind exactly this context"
        siblings = [rows["prompt_ids"][n] for n, task in enumerate(rows["task_id"]) if task == episode["task_id"]]
        assert all(sibling == prompt for sibling in siblings)


def test_prompts_list_the_tools_of_their_pack_and_a_revealed_one_is_in_the_users_message(told: dict[str, Any]) -> None:
    revealed = 0
    for step, place, episode in list_rows(told):
        prompt, between = told["prompts"][step][place], told["between"][step][place]
        listed = {name for name in ("list_todos", "finish_todo", "add_todo", "switch") if f'"name": "{name}"' in prompt}
        if episode["pack"] == "errands":
            assert listed == {"switch"}
        elif episode["task_id"] != "todo/reveal":
            assert listed == {"list_todos", "finish_todo", "add_todo"}
        else:
            assert listed == {"list_todos", "finish_todo"}
            if place % 2 == 0:
                answers = [message for message in episode["messages"] if message["role"] == "tool"]
                assert [message["error"] for message in answers] == [None, "unknown_tool", None]
                [_, turn] = between.split("Further tools are now available:")
                assert '"name":"add_todo"' in turn.split("<|im_end|>")[0]
                revealed += 1
    assert revealed == 2


def test_a_withheld_fact_is_disclosed_and_goals_come_one_by_one(told: dict[str, Any]) -> None:
    said = {
        episode["task_id"]: [message["content"] for message in episode["messages"] if message["role"] == "user"]
        for _, place, episode in list_rows(told)
        if place % 2 == 0
    }
    assert said["todo/withheld"] == ["Something new belongs on my list.", "'Buy milk', please."]
    assert said["todo/goals"] == [goal["query"] for goal in KINDS["goals"]["goals"]]
