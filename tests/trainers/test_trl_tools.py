"""TRL's `environment_factory` over a pack: the tools as TRL reads them, and a real run of GRPO in which TRL's own loop calls them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia import event_loop
from simia.envs.environment import Episode
from simia.envs.opening import open_environment
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.tool import ToolSpec
from simia.trainers.trl.tool_methods import environment_factory, make_method, tool_rows, tools_reward
from tests.trainers.conftest import Trainer

PROBE = Path(__file__).with_name("tools_probe.py")
PACKS = ("customer_service", "office")


@pytest.fixture(scope="module")
def told(trl: Trainer, taught_model: Path, errands: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What three steps of GRPO were made of."""
    out = tmp_path_factory.mktemp("tools") / "out.json"
    trl.run(PROBE, taught_model, errands, out, *PACKS)
    return dict(json.loads(out.read_text()))


def test_three_steps_move_the_policy_by_the_environments_rewards(told: dict[str, Any]) -> None:
    assert told["steps"] == 3 == len(told["batches"])
    assert all(math.isfinite(loss) for loss in told["losses"])
    assert told["changed"][0] == told["changed"][1]
    assert {0.0, 1.0} <= {value for rewards in told["rewards"] for value in rewards}
    assert any(any(advantage != 0 for advantage in batch["advantages"]) for batch in told["batches"])
    earned = Counter(episode["reward"].get("value") for episode in told["episodes"])
    assert earned == Counter(value for rewards in told["rewards"] for value in rewards)


def test_what_trl_trains_are_the_policys_own_turns(told: dict[str, Any]) -> None:
    """Each trained text is one turn after the other of the assistant; nothing that the tools said is among it."""
    answered = 0
    for texts, said in zip(told["trained"], told["said"], strict=True):
        for text, completion in zip(texts, said, strict=True):
            own = [message for message in completion if message["role"] == "assistant"]
            assert text.count("<|im_end|>") in (len(own), len(own) - 1), "the last one may be cut"
            results = [m["content"] for m in completion if m["role"] == "tool" and m["content"]]
            assert not any(result in text for result in results)
            answered += len(results)
    assert answered


def test_the_episodes_hold_the_calls_and_the_last_words(told: dict[str, Any]) -> None:
    def told_by(messages: list[dict[str, Any]]) -> str:
        calls = [call["function"] for m in messages for call in m.get("tool_calls") or []]
        return json.dumps([[[c["name"], c["arguments"]] for c in calls], messages[-1].get("content") or ""])

    seen = Counter(told_by(completion) for said in told["said"] for completion in said)
    kept = Counter()
    for episode in told["episodes"]:
        own = [m for m in episode["messages"] if m["role"] == "assistant"]
        calls = [[c["name"], c.get("arguments")] for m in own for c in m.get("calls", [])]
        if episode["end"]["kind"] != "aborted":
            kept[json.dumps([calls, own[-1].get("content") or ""])] += 1
    assert not kept - seen, "an episode that no completion shows"
    assert (seen - kept).total() == 1, "the one whose world was lost heard no last words"


def test_the_prompt_has_the_policy_the_tools_and_the_task(told: dict[str, Any]) -> None:
    prompts = [prompt for batch in told["prompts"] for prompt in batch]
    assert all("You switch lamps." in prompt for prompt in prompts)
    assert all('"name": "switch", "description": "Switch a lamp on or off."' in prompt for prompt in prompts)
    assert len(set(prompts)) > 1
    assert all(" lamp on.<|im_end|>" in prompt for prompt in prompts)


def test_an_aborted_episode_earns_nothing_and_moves_nothing(told: dict[str, Any]) -> None:
    lost = [(b, i) for b, values in enumerate(told["rewards"]) for i, value in enumerate(values) if value is None]
    assert len(lost) == 1
    ((batch, row),) = lost
    assert told["batches"][batch]["advantages"][row] == 0
    assert sum(episode["end"]["kind"] == "aborted" for episode in told["episodes"]) == 1


def test_a_group_is_a_task_of_one_step(told: dict[str, Any]) -> None:
    groups = Counter(episode["extra"]["group"] for episode in told["episodes"])
    assert set(groups.values()) == {4}
    assert {group.split("/")[0] for group in groups} == {"0", "1", "2"}, "the trainer's own"


@pytest.mark.parametrize("name", PACKS)
def test_trl_reads_each_tool_as_the_pack_has_it(told: dict[str, Any], name: str) -> None:
    for got, tool in zip(told["schemas"][name], Pack.load(name).tools, strict=True):
        assert (got["name"], got["description"]) == (tool.name, tool.description)
        want = tool.parameters
        assert list(got["parameters"]["properties"]) == list(want["properties"])
        assert got["parameters"].get("required", []) == [
            argument for argument in want["properties"] if argument in want.get("required", [])
        ]
        for argument, schema in want["properties"].items():
            read = got["parameters"]["properties"][argument]
            words, _, rest = read.pop("description").partition(". JSON Schema: ")
            assert words.rstrip(".") == schema["description"].rstrip(".")
            assert read | json.loads(rest or "{}") == {k: v for k, v in schema.items() if k != "description"}


def test_words_that_trls_parser_takes_for_its_own_are_told_apart() -> None:
    properties = {"a": {"type": "string", "description": "b:\n c: (choices: one or two)"}, "b": {"type": "integer"}}
    tool = ToolSpec(
        name="t", description="Says.\n\nReturns: x", parameters={"type": "object", "properties": properties}
    )
    doc = make_method(tool).__doc__
    assert doc == "Says.\n\nReturns : x\n\nArgs:\n    a: b: c: (choices : one or two)\n    b: b"


def test_what_no_method_can_stand_for_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"'reset': .*rollout_func"):
        make_method(ToolSpec(name="reset"))
    with pytest.raises(UserError, match=r"argument 'from' cannot be a Python parameter; train with rollout_func"):
        make_method(ToolSpec(name="mail", parameters={"type": "object", "properties": {"from": {"type": "string"}}}))


def test_an_argument_that_a_method_has_already_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"'mail': argument 'self' cannot be a Python parameter; train with rollout_func"
    ):
        make_method(ToolSpec(name="mail", parameters={"type": "object", "properties": {"self": {"type": "string"}}}))


def test_a_run_that_goes_on_names_its_groups_as_before(errands: Path) -> None:
    """By the trainer's step: a batch's names are the same in a process that begins with it."""
    environment = event_loop.run(open_environment(str(errands), user="none"))
    rows = tool_rows(environment)
    plain = environment.reset
    players = list[str | None]()

    async def noted(*args: Any, name: str | None = None, **how: Any) -> Any:
        players.append(name)
        return await plain(*args, name=name, **how)

    environment.reset = noted  # type: ignore[method-assign]

    def played(*steps: tuple[int, bool], rank: int = 0) -> list[str | None]:
        state, model = SimpleNamespace(global_step=0), SimpleNamespace(training=True)
        trainer = SimpleNamespace(state=state, model=model, accelerator=SimpleNamespace(process_index=rank))
        make = environment_factory(environment, trainer=lambda: trainer)
        instances, groups = [make(), make()], []
        for state.global_step, model.training in steps:
            for instance in instances:
                instance.reset(**rows[0])
                assert instance._episode is not None
                groups.append(instance._episode.group)
        return groups[::2]

    task = rows[0]["task_id"]
    whole = played((9, True), (10, True), (10, False), (10, False), (11, True))
    assert whole == [f"{step}/{task}" for step in ("9", "10", "eval-10", "eval-10.2", "11")]
    assert played((11, True)) == whole[-1:]
    assert players[-2:] == players[-4:-2], "and its players"
    played((11, True), rank=1)
    assert not set(players[-2:]) & set(players[:-2]), "another rank's are others"
    event_loop.run(environment.close())


def test_a_lost_evaluation_is_logged_and_a_lost_step_ends_the_training(
    errands: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = event_loop.run(open_environment(str(errands), user="none"))
    state, model = SimpleNamespace(global_step=16), SimpleNamespace(training=False)
    trainer = SimpleNamespace(state=state, model=model, accelerator=SimpleNamespace(process_index=0))
    tools = environment_factory(environment, trainer=lambda: trainer)()
    lost = Episode.aborted(environment, environment.tasks[0], 0, Aborted(Code.CONNECTION, "nobody listens"))

    async def finish(_: Any) -> Episode:
        return lost

    monkeypatch.setattr(tools, "_finish", finish)
    batch: dict[str, Any] = {"completions": [[]], "environments": [tools], "trainer_state": state}
    assert tools_reward(**batch) == [None]
    assert "evaluation at step 17: 1 of 1 episode without a reward, mostly: nobody listens" in caplog.text
    model.training = True
    with pytest.raises(UserError, match=r"^step 17: 1 of 1 episode without a reward, mostly: nobody listens"):
        tools_reward(**batch)
    event_loop.run(environment.close())


def test_instances_share_one_pack_and_play_on_their_own(errands: Path) -> None:
    environment = event_loop.run(open_environment(str(errands), user="none"))
    rows = tool_rows(environment)
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    make = environment_factory(environment)
    first, second = make(), make()
    assert first.reset(**rows[0]) == "Switch the kitchen lamp on."
    assert second.reset(**rows[1]) == "Switch the hall lamp on."
    assert first.switch(lamp="kitchen", on=True) == '{"lamp":"kitchen","on":true}'  # type: ignore[attr-defined]
    assert "there is no lamp" in second.switch(lamp="cellar", on=True)  # type: ignore[attr-defined]
    done, cut = [{"role": "assistant", "content": "Done."}], [{"role": "assistant", "tool_calls": [{}]}]
    assert tools_reward(completions=[done, cut], environments=[first, second]) == [1.0, 0.0]
    assert first._episode is not None
    assert first._episode.environment.pack is second._environment.pack
    assert first.switch(lamp="kitchen", on=False).startswith("The task has ended")  # type: ignore[attr-defined]
    assert second._episode is not None
    assert second._episode.end is not None
    assert second._episode.end.kind == "truncated", "a call that nobody answered: TRL was out of tokens"
    event_loop.run(environment.close())
