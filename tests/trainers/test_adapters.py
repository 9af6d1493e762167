"""Gymnasium, OpenEnv and skyrl-gym for real, in their own environment, and RAGEN's seat: one suite, and what is each one's own."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.search_path import cache_root
from simia.trainers.ragen.env import SimiaEnv, choose_task
from simia.trainers.ragen.settings import SimiaEnvConfig
from simia.venvs import make_python_path
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conformance import Plain, cases, check
from tests.trainers.conftest import ROOT, Trainer

PROBE = Path(__file__).with_name("adapters_probe.py")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    served = FakeEndpoint("--respond", "tests.trainers.conformance:stage")
    yield served
    served.stop()


@pytest.fixture(scope="module")
def told(
    environments: Callable[[str], Path], endpoint: FakeEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("adapters")
    trainer = Trainer(environments("adapters"), work)
    trainer.env["PYTHONPATH"] = os.pathsep.join([make_python_path(trainer.python, print), str(ROOT)])
    trainer.env["SIMIA_CACHE"] = str(cache_root())
    trainer.run(PROBE, endpoint.url, work / "out.json")
    return dict(json.loads((work / "out.json").read_text()))


# -- the suite ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ["gymnasium", "openenv", "skyrl"])
def test_an_adapter_shows_what_the_plain_environment_shows(told: dict[str, Any], adapter: str) -> None:
    found = told[adapter]
    assert {name: why for name, why in found.items() if why} == {}
    assert len(found) == 8 + 9 + 1 + 9


class Ragen:
    """The seat without RAGEN, which its signatures do not need."""

    exact, shares = False, True
    seeds = itertools.count()

    def open(self, stage: dict[str, Any]) -> None:
        self.env = SimiaEnv(SimiaEnvConfig(stage=stage, train=None))

    def reset(self, task: str) -> str:
        tasks = self.env.tasks("train")  # a seed is a group, whose answers are kept: so each time another one
        return self.env.reset(seed=next(s for s in self.seeds if choose_task(tasks, s).id == task))

    def act(self, text: str) -> tuple[str, float | None, bool]:
        observation, reward, done, info = self.env.step(text)
        assert bool(info["unscored"]) is (reward != reward)
        return observation, reward if done and reward == reward else None, done

    def close(self) -> None:
        self.env.close()


def test_ragens_seat_shows_what_the_plain_environment_shows(endpoint: FakeEndpoint) -> None:
    found = check(Ragen, endpoint.url, ["customer_service"])
    assert {name: why for name, why in found.items() if why} == {}
    assert len(found) == 8 + 9


class ZeroForLost(Plain):
    """Takes an outage for a failure."""

    def act(self, text: str) -> tuple[str, float | None, bool]:
        heard, reward, done = super().act(text)
        return heard, (reward or 0.0) if done else None, done


class Trimmed(Plain):
    """Shows the half of everything."""

    def act(self, text: str) -> tuple[str, float | None, bool]:
        heard, reward, done = super().act(text)
        return heard[: len(heard) // 2], reward, done


class Generous(Plain):
    """Every end is a good one."""

    def act(self, text: str) -> tuple[str, float | None, bool]:
        _, reward, done = heard = super().act(text)
        return (heard[0], 1.0, True) if done and reward is not None else heard


class Anything(Plain):
    """Has one task, whatever it is asked for."""

    def reset(self, task: str) -> str:
        return super().reset("cs-009")


@pytest.mark.parametrize(
    ("driver", "fails"),
    [
        (ZeroForLost, {"a_lost_world_has_no_reward", "an_end_that_nobody_can_judge_has_no_reward"}),
        (Trimmed, {"solves_like_the_plain_environment"}),
        (Generous, {"nothing_earns_zero", "a_limit_cuts_and_scores"}),
        (Anything, {"a_group_has_one_task"}),
    ],
)
def test_the_suite_finds_what_is_wrong(driver: type[Plain], fails: set[str], endpoint: FakeEndpoint) -> None:
    found = check(driver, endpoint.url, ["customer_service"], ["simulated"])
    assert {name.partition(" ")[0] for name, why in found.items() if why} == fails


# -- each one's own ----------------------------------------------------------------------------------------------


def test_gymnasiums_checker_has_nothing_to_say(told: dict[str, Any]) -> None:
    own = told["gymnasium_takes_it_for_its_own"]
    assert own["warned"] == []
    assert own["tasks"] == ["cs-004", "cs-004", "cs-005", "cs-004"], "task seed mod 78, from cs-001 on"
    assert own["known"] == ["cs-010", "cs-010", 1 << 20, 300], "registered with an environment that is open"
    assert own["stores"] == [], "no model is asked, so there is nothing to keep"
    assert own["drawn"][0] == own["drawn"][1]
    assert len(set(own["drawn"][0])) == 3
    assert "assistant: get_order(" in own["shown"]
    assert "no order ORD-00001" in own["shown"]
    assert own["said"][0] == "reset has no option 'tasks'; there are: task, group"
    assert "no task 'nope'" in own["said"][1]
    length, inside = own["cut"]
    assert 150 < length <= 200
    assert inside


def test_gymnasium_steps_many_in_one_process_or_in_several(told: dict[str, Any]) -> None:
    own = told["gymnasium_steps_many"]
    for kind in ("sync", "async"):
        assert own[kind]["tasks"] == ["cs-008", "cs-008", "cs-009"]
        assert own[kind]["same"] == [True, False]
        assert own[kind]["first"] == [[0.0] * 3, [False] * 3, [False] * 3]
        assert own[kind]["scores"] == [[0.0] * 3, [True] * 3, [True] * 3]
    assert (own["sync"]["shared"], own["async"]["shared"], own["left"]) == (1, 0, 0)
    assert own["asked"] == [2, 3, 6], (
        "equal seeds and a named group are asked for once, episodes without a seed each for itself"
    )
    assert own["stores"] == ["0"], "three of them are one stage"


def test_openenv_plays_many_sessions_at_once(told: dict[str, Any]) -> None:
    own = told["openenv_seats_many_at_once"]
    tasks = [f"cs-{n % 3 + 9:03}" for n in range(24)]
    for round_ in ("apart", "grouped"):
        assert [row[1] for row in own[round_]] == tasks
        assert all('{"ok":true}' in row[0] for row in own[round_])
        assert all(row[2:] == [0.0, "terminated"] for row in own[round_])
    assert own["asked"] == [24, 3], "each its own, and a group once"
    assert own["kept"] == sorted(tasks * 2)


def test_openenv_keeps_what_a_client_left(told: dict[str, Any]) -> None:
    assert told["openenv_keeps_what_a_client_left"]["ends"] == [
        ["cs-009", {"kind": "truncated", "code": "agent_failed"}, 0.0]
    ]


@pytest.mark.attack("requests to OpenEnv's /mcp and silent WebSockets take all seats for good", where="outside")
def test_openenv_ends_who_is_silent_and_makes_no_sessions_by_mcp(told: dict[str, Any]) -> None:
    own = told["openenv_ends_who_is_silent"]
    assert "error" not in own, own["error"]
    assert {(row["id"], row["error"]["code"]) for row in own["mcp"]} == {(7, -32601)}
    assert "connect to the WebSocket /ws" in own["mcp"][0]["error"]["message"]
    assert [row["id"] for row in own["odd"]] == [None] * 3
    assert own["upgrade"] == [True] * 3
    assert own["full"], "three seats are three seats"
    assert own["at_mcp"] == "403", "no WebSocket there"
    assert own["ended"] == [True] * 3
    assert own["played"] == [False] * 3, "all seats are free again"
    assert own["kept"] == [["cs-009", "truncated"]] * 3, "whose clients fell silent"
    assert own["idle"] != "it went on"
    assert own["taken"] == 0


def test_a_command_serves_openenv(told: dict[str, Any]) -> None:
    own = told["a_command_serves_it"]
    assert "error" not in own, own["error"]
    words = ["no task 'nope'", "did you mean 'task'", "seed: ", "split 'train' has", "reset first"]
    assert len(own["said"]) == len(words)
    assert all(word in said and "\n" not in said for word, said in zip(words, own["said"], strict=True))
    assert own["opening"] == ["cs-009", 20, False, None]
    assert own["solved"] == [[False, None]] * (len(own["solved"]) - 1) + [[True, 1.0]]
    assert "get_order" in own["calls"]
    assert own["nothing"] == [0.0, "terminated", "user_stop"]
    assert (own["state"]["task"], own["state"]["end"]) == ("cs-009", "terminated")
    splits, task, number = own["tasks"]
    assert [split["name"] for split in splits] == ["test", "train"]
    assert task["task"].keys() == {"id", "index", "split"}, "nothing of its solution"
    assert number["num_tasks"] > 1
    assert own["stores"] == [], "no model is asked, so there is nothing to keep"
    assert own["refused"] == [404, 403, 403]
    assert own["left"] == [0, ""]
    assert own["rows"] == [
        ["cs-009", "terminated", 1.0],
        ["cs-001", "truncated", 0.0],  # reset after one call
        ["cs-009", "terminated", 0.0],
        ["cs-010", "truncated", 0.0],  # under way when the server was stopped
    ]


def test_the_page_is_right(told: dict[str, Any]) -> None:
    blocks = told["the_page_runs_to_the_letter"]["blocks"]
    assert [(code, err) for code, _, err in blocks] == [(0, "")] * 4
    gymnasium, openenv, skyrl, groups = (out for _, out, _ in blocks)
    assert "no order ORD-00001" in gymnasium
    assert openenv.splitlines()[-1] == "True 0.0 terminated"
    assert "'env_class': 'simia'" in skyrl
    assert groups.splitlines()[0].startswith("[0.577")
    assert groups.splitlines()[1] == "[0.5, -0.5, 0.0, 0.0]"


def test_skyrl_makes_it_and_its_limit_scores(told: dict[str, Any]) -> None:
    own = told["skyrl_makes_and_cuts"]
    assert [(row["env_class"], row["task"]) for row in own["rows"]] == [("simia", "cs-009"), ("simia", "cs-012")]
    assert own["roles"] == ["system", "user"]
    assert own["shared"] == 1, "the rows, the registered one and its episode are one stage"
    assert own["stores"] == [], "no model is asked, so there is nothing to keep"
    assert own["observed"] == "tool"
    assert (own["done"], own["rewards"]) == ([False, True], [0.0, 0.0])
    assert own["metrics"] == {"turns": 2, "aborted": False, "cut": True, "score": 0.0}
    assert own["added"]["aborted"] == 0.5
    assert own["groups"] == ["0/a/b", "0/a/b", "0/a/b", "2/a/b", "3/c"]
    assert "task_rows" in own["said"]


def test_every_case_has_what_its_checks_need() -> None:
    for case in cases("http://127.0.0.1:1/v1"):
        solution = case.solution()
        assert any(text.count("<tool_call>") > 1 for text in solution), "parallel calls"
        assert any("<tool_call>" not in text for text in solution[:-1]), "words in the middle"
