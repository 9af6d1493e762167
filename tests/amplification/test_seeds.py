"""Seeds that are refused are named by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia import formats
from simia.amplification.model_mix import Writer
from simia.amplification.seeds import describe_seeds, judge_seeds, load_seed_packs, restore_seeds, take_seeds
from simia.amplification.session import store_seeds
from simia.amplification.settings import AmplifyConfig, SeedSettings
from simia.amplification.simulate import Simulator
from simia.config import load_config
from simia.errors import Code, UserError
from simia.jobs import Run
from simia.llm.types import LLMFault, Reply, Request
from simia.pack import Pack
from simia.quality.check import Checks
from simia.quality.grounding import Identifiers, infer_identifiers
from simia.trajectory import Trajectory
from tests.envs.worlds.test_simulated import Scripted


def load(path: Path) -> list[str]:
    config = AmplifyConfig.model_validate({"seeds": {"packs": [str(path)]}})
    return [refused.name for refused in load_seed_packs(config.seeds, config.checks).refused]


def test_a_bad_row_is_named_by_its_line(tmp_path: Path) -> None:
    good = Pack.load("office").seeds[0].model_dump_json()
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{good}\n{{"messages": 3}}\n\nnot json\n')
    assert load(path) == ["mine.jsonl:2", "mine.jsonl:4"]


def test_rows_without_tools_say_how_to_add_them(tmp_path: Path) -> None:
    rows = [seed.model_copy(update={"tools": []}).model_dump_json() for seed in Pack.load("office").seeds[:2]]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(
        UserError, match=r'and 1 more: unknown_tool .*; the rows list no tools: add "tools" to each row'
    ):
        load(path)


def test_no_rows_are_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("")
    with pytest.raises(UserError, match="no seeds: the files are empty"):
        load(path)


def test_a_file_without_a_usable_row_names_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('not json\n{"messages": [{"role": "user", "content": "Hi"}]}\n')
    with pytest.raises(UserError, match=r"^mine: none of 2 seeds can be used: mine\.jsonl:1: bad_json: not JSON: "):
        load(path)


def test_refused_seeds_are_counted_by_reason_with_the_first_of_each(tmp_path: Path) -> None:
    rows = [*formats.write(Pack.load("customer_service").seeds[:6], "openai")]
    bad_role = {**rows[0], "messages": [{"role": "judge", "content": "?"}]}
    no_answer = {**rows[1], "messages": rows[1]["messages"][:-1]}
    file = tmp_path / "mine.jsonl"
    lines = [json.dumps(row) for row in [rows[0], bad_role, *rows[2:], bad_role, no_answer]]
    file.write_text("\n".join([*lines, "{broken", ""]), encoding="utf-8")
    seeds = load_seed_packs(SeedSettings(packs=[str(file)]), Checks())
    first, *others = describe_seeds(seeds, 100)
    assert first == "5 seeds of 9 read; refused: 2 unknown_role, 1 bad_json, 1 bad_ending"
    assert others[0].startswith("  unknown_role, first: mine.jsonl:2: ")
    assert others[1].startswith("  bad_json, first: mine.jsonl:9: not JSON: ")
    assert others[2].startswith("  bad_ending, first: mine.jsonl:8: ")
    few = load_seed_packs(SeedSettings(packs=[str(file)], limit=2), Checks())
    assert describe_seeds(few, 100)[0] == "2 seeds of 3 read; refused: 1 unknown_role", (
        "no row after the second seed is read"
    )
    short = load_seed_packs(SeedSettings(packs=["customer_service"], max_messages=8), Checks())
    left = short.read - len(short.order)
    assert describe_seeds(short, 100) == [
        f"{len(short.order)} seeds of {short.read} read; {left} left out by the settings of seeds"
    ]


def test_a_run_with_fewer_items_than_seeds_says_which_are_used() -> None:
    seeds = load_seed_packs(SeedSettings(packs=["customer_service"]), Checks())
    said = "used: the first 10 of 38 seeds; to use more, raise --n, or shuffle the file"
    assert describe_seeds(seeds, 10) == ["38 seeds of 38 read", said]
    assert describe_seeds(seeds, 38) == ["38 seeds of 38 read"]


def test_seeds_are_chosen_by_task_in_the_given_order() -> None:
    settings = {"packs": ["customer_service", "office"], "tasks": {"office": ["of-116", "of-103"]}}
    config = AmplifyConfig.model_validate({"seeds": settings})
    seeds = load_seed_packs(config.seeds, config.checks)
    assert [seed.task_id for seed in seeds.groups["office"]] == ["of-116", "of-103"]
    assert len(seeds.groups["customer_service"]) == 38, "a pack without an entry gives all"
    assert seeds.read == 80
    config.seeds.tasks = {"office": ["unknown"]}
    assert len(load_seed_packs(config.seeds, config.checks).groups["office"]) == 42
    config.seeds.tasks = {"office": ["of-116", "of-103"]}
    kept = take_seeds(Pack.load("office").seeds, config.seeds, config.checks)
    assert len(kept.order) == 42, "seeds in memory are the caller's choice"


def test_the_quickstart_has_seeds_with_two_calls_in_both_packs() -> None:
    config = load_config(AmplifyConfig, "amplify/quickstart")
    seeds = load_seed_packs(config.seeds, config.checks)
    named = {task for tasks in config.seeds.tasks.values() for task in tasks}
    assert {seed.task_id for seed in seeds.order} == named
    for group in seeds.groups.values():
        assert any(len(list(seed.calls())) == 2 for seed in group)


@pytest.mark.parametrize("pack", [None, "theirs"])
def test_identifiers_are_known_for_the_pack_that_a_row_names(pack: str | None, tmp_path: Path) -> None:
    def undeclared(seed: Trajectory) -> Trajectory:
        tools = [tool.model_copy(update={"identifiers": None}) for tool in seed.tools]
        return seed.model_copy(update={"tools": tools, "pack": pack})

    rows = [undeclared(seed) for seed in Pack.load("office").seeds]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(row.model_dump_json() for row in rows))
    config = AmplifyConfig.model_validate({"seeds": {"packs": [str(path)]}})
    held = take_seeds(rows, config.seeds, config.checks)
    for seeds in (load_seed_packs(config.seeds, config.checks), held):
        (name,) = {seed.pack or "" for seed in seeds.order}
        assert name == pack or pack is None
        assert seeds.identifiers == {name: infer_identifiers(rows[0].tools, rows)}
        simulator = Simulator(config, seeds, writers=[Writer("m", "m", structured=False)])
        assert simulator.fixed.keys() == {name}


def test_restored_seeds_have_the_identifiers_of_all_seeds(tmp_path: Path) -> None:
    """Seeds that are too long are not used, but show how arguments are used."""
    config = AmplifyConfig.model_validate({"seeds": {"packs": ["office"], "max_messages": 6}})
    seeds = load_seed_packs(config.seeds, config.checks)
    seeds.identifiers = {"office": Identifiers({"search": (("query", "id"), ("id",))})}
    run = Run.create(tmp_path, config, name="r", facts={"seeds": seeds.digest})
    try:
        store_seeds(run, seeds)
        restored = restore_seeds(run)
        assert restored is not None
        assert restored.identifiers == seeds.identifiers
        run.ledger.set_meta("identifiers", None, twice=True)  # a run of an earlier version
        older = restore_seeds(run)
        assert older is not None
        assert older.identifiers.keys() == {"office"}
    finally:
        run.close()


async def test_judging_seeds_counts_against_the_budget_of_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down(Scripted):
        tried = 0

        async def complete(self, request: Request, *, draw: str) -> Reply:
            self.tried += 1
            raise LLMFault(Code.SERVER_ERROR, "down", retry=True)

    values = {"seeds": {"packs": ["office"]}, "prefilter": {"enabled": True}}
    config = AmplifyConfig.model_validate({**values, "limits": {"max_requests": 5, "backoff": 0.001, "retries": 2}})
    seeds = load_seed_packs(config.seeds, config.checks)
    run = Run.create(tmp_path, config, name="r", facts={"seeds": seeds.digest})
    model = Down(lambda _: "")
    try:
        for _ in range(2):
            with pytest.raises(UserError, match="max_requests is 5 and 5 is spent"):
                await judge_seeds(run, config, seeds, model)
            assert model.tried == 5
    finally:
        run.close()
