"""`vary` on packs of every origin: which tasks are varied, what holds of a variant, and what the new pack and the report say."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from simia.authoring.difficulty import store_measurements
from simia.authoring.verification_gate import verify_tasks
from simia.cli import build_app
from simia.config import parse_config
from simia.envs.opening import open_environment
from simia.envs.play.llm_agent import LLMAgentSettings
from simia.errors import UserError
from simia.pack import Pack
from simia.state import merge_patch
from simia.synthesis import session
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.dry_run import DryRun, describe_dry_run
from simia.synthesis.reasons import Reason, Unreadable
from simia.synthesis.recipes.vary import VaryConfig, VaryRecipe
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import Expectation, StageOutputs
from simia.synthesis.stages import varied
from simia.synthesis.stages.gym_difficulty import AGENT_ROLE
from simia.synthesis.stages.varied import AgentEpisodes, Baseline, Remeasured, VariantVerdicts, VariedPack
from simia.synthesis.varying.draft_checks import check_draft, open_source
from simia.synthesis.varying.start_excerpt import MOST_CHARACTERS, excerpt_start
from simia.synthesis.varying.task_drafts import join_patches, make_varied_task, read_variant_draft
from simia.task import Measurement, Task
from tests.importers.test_codegym import INPUTS, SOURCE
from tests.synthesis.build_fixtures import FixtureEngine, load_library, read_files, run_stages
from tests.synthesis.varying_fixtures import BAD, GOOD, REPLIES, read_bad, run_vary

TASKS = ["cs-034", "cs-027", "cs-030", "cs-010"]
SEED = 23  # gives each of these tasks the change that its reply makes
DRAFTS = {
    key: GOOD[key] for key in ("cs-034/distractor", "cs-027/withheld_fact", "cs-030/dependent_call", "cs-010/easier")
}
SOLVED = {
    "baseline/cs-034": 4, "baseline/cs-027": 4, "baseline/cs-030": 4, "measured/cs-034/distractor": 2,
    "measured/cs-027/withheld_fact": 4, "measured/cs-030/dependent_call": 3, "measured/cs-010/easier": 1,
}  # fmt: skip


def test_tasks_at_both_ends_get_variants_that_are_verified_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, backend = run_vary(tmp_path / "a", monkeypatch, "customer_service", DRAFTS, SOLVED, tasks=TASKS, seed=SEED)
    assert not any(made.outputs.refused.values()), made.outputs.refused
    assert made.summary == [
        "strong: 4 tasks measured, 4 of them outside of 25% to 75%",
        "harder: 3 variants held, 3 passed the gate together and were measured, 2 moved into 25% to 75%; mean pass rate 100% before, 75% after",
        "easier: 1 variant held, 1 passed the gate together and were measured, 1 moved into 25% to 75%; mean pass rate 0% before, 25% after",
    ]
    old, new = Pack.load("customer_service"), Pack.load(made.packs[0])
    added = {task.id: task for task in new.tasks if "varied" in task.tags}
    assert [task.id for task in new.tasks] == [*(task.id for task in old.tasks), *added]
    assert {name: (task.extra["variant_of"], task.measured["strong"].rate) for name, task in added.items()} == {
        "cs-034-distractor": ("cs-034", 0.5),
        "cs-027-withheld-fact": ("cs-027", 1.0),
        "cs-030-dependent-call": ("cs-030", 0.75),
        "cs-010-easier": ("cs-010", 0.25),
    }
    assert added["cs-034-distractor"].tags == ["varied", "harder", "distractor"]
    assert [part.kind for part in added["cs-030-dependent-call"].reward.parts] == ["state"]
    assert new.task("cs-034").measured == {"strong": Measurement(n=4, solved=4)}
    assert new.task("cs-001").measured == {}
    assert new.seeds == old.seeds
    prompt = backend.prompts["variations/cs-034/distractor.draft1"]
    assert "the assistant solved it in 4 of 4 attempts" in prompt
    assert '"ORD-20456": {"customer_id": "CUS-1267"' in prompt
    check_gate(made.packs[0], list(added.values()))
    again, _ = run_vary(
        tmp_path / "b", monkeypatch, "customer_service", DRAFTS, SOLVED, tasks=TASKS, seed=SEED, executions=1
    )
    assert read_files(made.packs[0]) == read_files(again.packs[0])


def check_gate(pack: Path, tasks: list[Task]) -> None:
    """The new tasks pass the gate in the written pack."""

    async def verify() -> None:
        async with await open_environment(Pack.load(pack), backend="executable", user="none") as environment:
            report = await verify_tasks(environment, tasks)
        assert [verdict.task for verdict in report.verdicts if not verdict.passed] == []

    asyncio.run(verify())


def test_bad_variants_are_refused_with_their_reason() -> None:
    pack = Pack.load("customer_service")

    async def judge(task: str, change: str, text: str) -> tuple[str, str]:
        try:
            draft = read_variant_draft(text, change, pack)  # type: ignore[arg-type]
        except Unreadable as error:
            return Reason.UNREADABLE_REPLY, str(error)
        async with open_source(pack, {}) as environment:
            found = await check_draft(environment, pack.task(task), change, draft)  # type: ignore[arg-type]
        return ("", "it holds") if isinstance(found, Task) else (str(found[0]), found[1])

    async def judge_all() -> dict[str, tuple[str, str]]:
        return {case: await judge(*read_bad(case)) for case in BAD}

    for case, (reason, words) in asyncio.run(judge_all()).items():
        assert reason == BAD[case]["reason"], f"{case}: {words}"
        assert BAD[case]["words"] in words, case


def test_the_other_good_variants_hold() -> None:
    """What the end-to-end test does not use."""
    pack = Pack.load("customer_service")

    async def check() -> Task | tuple[Reason, str]:
        draft = read_variant_draft(GOOD["cs-010/policy_condition"], "policy_condition", pack)
        async with open_source(pack, {}) as environment:
            return await check_draft(environment, pack.task("cs-010"), "policy_condition", draft)

    found = asyncio.run(check())
    assert isinstance(found, Task), found
    assert found.initial == {"patch": {"orders": {"ORD-20372": {"items": {"ITM-5115": {"final_sale": True}}}}}}


def test_a_variant_that_fails_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, fails = read_bad("call_fails")
    drafts = {"variations/cs-010/easier.draft1": fails, "variations/cs-010/easier.draft2": GOOD["cs-010/easier"]}
    made, backend = run_vary(tmp_path, monkeypatch, "customer_service", drafts, {}, tasks=["cs-010"], repairs=1)
    assert [task.id for task in Pack.load(made.packs[0]).tasks][-1] == "cs-010-easier"
    again = backend.prompts["variations/cs-010/easier.draft2"]
    assert "It cannot be used: reference_fails: call 1, return_items:" in again
    assert made.outputs.notes["variations"] == {"cs-010/easier": {"drafts": 2}}


def test_what_the_pack_says_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path("seeds") / "customer_service", tmp_path / "shop")
    known = {"cs-010": Measurement(n=8, solved=0), "cs-034": Measurement(n=8, solved=4)}
    store_measurements(Pack.load(tmp_path / "shop"), "strong", known)
    made, backend = run_vary(tmp_path, monkeypatch, tmp_path / "shop", DRAFTS, {"measured/cs-010/easier": 4})
    assert [draw for draw in backend.asked if draw.startswith("baseline/")] == []
    assert list(made.outputs.of("variations")) == ["cs-010/easier"]
    assert "0 of 8 attempts" in backend.prompts["variations/cs-010/easier.draft1"]
    assert "0 moved into 25% to 75%; mean pass rate 0% before, 100% after" in made.summary[-1]


def test_nothing_is_written_if_no_variant_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, fails = read_bad("call_fails")
    made, _ = run_vary(
        tmp_path, monkeypatch, "customer_service", {"cs-010/easier": fails}, {}, tasks=["cs-010"], repairs=0
    )
    assert made.packs == []
    assert made.outputs.refused["variations"]["cs-010/easier"].reason == Reason.REFERENCE_FAILS


def test_a_synthesized_pack_is_varied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {
        "id": "pay-and-lend", "conversation": False, "instruction": "I am Tomas Weber, MB-02. I pay all my fines, and lend 'Tides and Moons'.",
        "reference": [
            {"name": "pay_fine", "arguments": {"member_id": "MB-02"}},
            {"name": "lend_book", "arguments": {"member_id": "MB-02", "book_id": "BK-003"}},
        ],
    }  # fmt: skip
    write_environment(tmp_path / "library", load_library(), tasks=[Task.model_validate(task)])
    check_easier(tmp_path, monkeypatch, "library", "pay-and-lend", REPLIES["library"])


def test_an_imported_pack_is_varied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inputs.txt").write_text(INPUTS)
    words = ["import", "codegym", str(SOURCE), str(tmp_path / "inputs.txt"), "--out", str(tmp_path / "closest")]
    assert CliRunner().invoke(build_app(), words).exit_code == 0
    variant, prompt = check_easier(tmp_path, monkeypatch, "closest", "input-01", REPLIES["gym"])
    assert variant.initial["inputs"]["numbers"] == [3, 41]
    assert variant.initial["inputs"]["sorted"] is True
    assert "`patch` is merged into this value: {" in prompt


def check_easier(folder: Path, monkeypatch: pytest.MonkeyPatch, pack: str, task: str, reply: str) -> tuple[Task, str]:
    """A task that an idle agent never solves gets an easier variant, which passes the gate in the written pack."""
    made, backend = run_vary(
        folder,
        monkeypatch,
        folder / pack,
        {f"{task}/easier": reply},
        {},
        tasks=[task],
        agent={"agent": "nothing", "name": None},
    )
    assert not any(made.outputs.refused.values()), made.outputs.refused
    variant = Pack.load(made.packs[0]).tasks[-1]
    assert variant.tags == ["varied", "easier"]
    assert variant.measured == {"nothing": Measurement(n=4, solved=0)}
    assert sum(turn.user is not None for turn in variant.make_script()) == 1
    assert variant.instruction.startswith(("I am Tomas Weber", "Find the number"))
    check_gate(made.packs[0], [variant])
    return variant, backend.prompts[f"variations/{task}/easier.draft1"]


def test_a_batch_asks_all_attempts_together(tmp_path: Path) -> None:
    batch = {"kind": "batch", "model": "big", "folder": str(tmp_path / "batch")}
    data = {"recipe": "vary", "source": "customer_service", "tasks": TASKS[:2], "llm": batch}
    config = parse_config(VaryConfig, data, where="the test")
    made = asyncio.run(
        session.start_synthesis(config, tmp_path / "varied", runs=tmp_path / "runs", name="run", say=lambda _: None)
    )
    assert made.stop.kind != "complete"
    files = [path for path in (tmp_path / "batch").rglob("*.jsonl") if "requests" in str(path) or path.stat().st_size]
    asked = [orjson.loads(line) for path in files for line in path.read_bytes().splitlines()]
    assert len(asked) == 2 * 4


def test_unusable_packs_and_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    for settings, words in (
        ({"source": ""}, "the pack is missing"),
        ({"source": "customer_service", "tasks": ["cs-0"]}, "has no task 'cs-0'"),
        ({"source": "customer_service", "low": 0.8}, "low is 0.8, more than high"),
    ):
        recipe = VaryRecipe(parse_config(VaryConfig, {"recipe": "vary", **settings}, where="the test"))
        with pytest.raises(UserError, match=words):
            recipe.list_stages()
    (tmp_path / "pack.yaml").write_text("format: 2\nname: empty\n")
    recipe = VaryRecipe(parse_config(VaryConfig, {"recipe": "vary", "source": str(tmp_path)}, where="the test"))
    with pytest.raises(UserError, match="pack empty has no tasks or no code"):
        recipe.list_stages()


def make_source() -> tuple[VariedPack, AgentEpisodes]:
    pack = Pack.load("customer_service")
    return VariedPack(pack, "idle", pack.tasks), AgentEpisodes("nothing", 2, 10, LLMAgentSettings())


def test_a_variant_that_the_gate_refuses_is_not_measured() -> None:
    source, episodes = make_source()
    good = read_variant_draft(GOOD["cs-010/easier"], "easier", source.pack)
    variant = make_varied_task(source.pack, source.pack.task("cs-010"), "easier", good, good.calls)
    wrong = variant.model_copy(
        update={"id": "cs-010-wrong", "initial": {"patch": {"orders": {"ORD-20372": {"status": "pending"}}}}}
    )
    outputs = StageOutputs(
        made={
            "baseline": {"cs-010": {"n": 2, "solved": 0}},
            "variations": {"cs-010/easier": dump(variant), "cs-010/wrong": dump(wrong)},
        }
    )
    made = run_stages(FixtureEngine({}), [VariantVerdicts(source), Remeasured(source, episodes)], outputs)
    assert list(made.of("measured")) == ["cs-010/easier"]
    assert made.refused["measured"]["cs-010/wrong"].reason == Reason.NOTHING_TO_VERIFY


def test_a_task_without_a_scored_episode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play_nothing(*_: object) -> list[float | None]:
        return [None, None]  # as if the infrastructure had failed

    monkeypatch.setattr(varied, "play_agents", play_nothing)
    source, episodes = make_source()
    source.tasks = source.tasks[:1]
    made = run_stages(FixtureEngine({}), [Baseline(source, episodes)])
    assert made.refused["baseline"]["cs-001"].reason == Reason.NOT_MEASURED


def test_a_folder_is_found_from_everywhere_and_a_changed_pack_is_another_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path("seeds") / "customer_service", tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    config = parse_config(VaryConfig, {"recipe": "vary", "source": "shop"}, where="the test")
    assert config.source == str(tmp_path / "shop")
    before = VariedPack(Pack.load("shop"), "a", []).content
    (tmp_path / "shop" / ".git").mkdir()
    (tmp_path / "shop" / ".git" / "index").write_text("x")
    assert VariedPack(Pack.load("shop"), "a", []).content == before
    (tmp_path / "shop" / "policy.md").write_text("Other rules.")
    assert VariedPack(Pack.load("shop"), "a", []).content != before


def test_each_task_gets_its_changes_from_the_seed() -> None:
    config = {"recipe": "vary", "source": "customer_service", "number": 2}
    changes = {
        task: VaryRecipe(parse_config(VaryConfig, {**config, "seed": seed}, where="the test")).plan.list_changes(
            task, rate
        )
        for seed, task, rate in ((0, "a", 1.0), (0, "b", 1.0), (0, "c", 0.0), (0, "d", 0.5))
    }
    assert all(len(changes[name]) == 2 and "easier" not in changes[name] for name in "ab")
    assert changes["c"] == ["easier"]
    assert changes["d"] == []


def test_a_patch_after_a_patch_does_what_both_do() -> None:
    state = {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    first, second = {"a": {"x": None, "w": 4}, "b": None}, {"a": {"y": None, "x": 5}, "b": {"q": 6}}
    both = merge_patch(merge_patch({"a": state["a"]}, first), second)
    assert merge_patch({"a": state["a"]}, join_patches(first, second)) == both
    assert join_patches({"a": {"x": 1}}, {"a": None}) == {"a": None}


def test_a_large_start_is_shown_in_part_with_the_rows_that_matter() -> None:
    rows = {f"R-{n:04d}": {"text": "word " * 200, "next": f"R-{n + 1:04d}"} for n in range(400)}
    text = excerpt_start({"rows": rows, "count": 400}, "Please close R-0377.")
    assert len(text) <= MOST_CHARACTERS + 20
    assert '"R-0377": {' in text
    assert '"R-0376": {' in text, "the row that refers to it"
    assert '"R-0200": {' not in text
    assert "more rows" in text


def test_a_dry_run_prices_the_agent_by_its_own_model() -> None:
    million = Expectation(1_000, 1_000, 0, AGENT_ROLE)
    found = DryRun(
        ["baseline", "variations"], prompt="Hi", expected={"baseline": million, "variations": Expectation(1, 0, 0)}
    )
    llm = {"kind": "openai", "model": "gpt-5-mini", "price": {"input": 2, "cached": 1, "output": 1}}
    own = {"kind": "openai", "model": "mine", "price": {"input": 7, "cached": 1, "output": 1}}
    for agent, words in (
        (own, "price: about $7.00 for 1,001 questions"),
        (None, "price: about $2.00 for 1,001 questions"),
        ({"kind": "embedded"}, "price: none, for a model on this machine; about $0.25 if gpt-5-mini answered for"),
        ({"kind": "openai", "model": "mine"}, "price: unknown (set llm.price); about $0.25 if gpt-5-mini answered for"),
    ):
        config = VaryConfig.model_validate(
            {"recipe": "vary", "llm": llm, "roles": {AGENT_ROLE: agent} if agent else {}}
        )
        assert describe_dry_run(found, config)[-1].startswith(words)
