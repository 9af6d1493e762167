"""Parquet, TRL, the suites' own forms, several sources, mixes, another system text, models by name."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from typer.testing import CliRunner

import simia
from simia import formats
from simia.cli import build_app
from simia.errors import UserError
from simia.exporting import CardFacts, export
from simia.exporting.llamafactory_rows import ModelEntry
from simia.exporting.parquet_table import to_table_row
from simia.exporting.preference_pairs import make_trl_pair
from simia.exporting.selection import (
    DUPLICATE,
    drop_duplicates,
    iterate_trajectories,
    mix_packs,
    parse_shares,
    set_system,
)
from simia.formats.dialect import RowError
from simia.formats.parquet_rows import from_table_row
from simia.pack import Pack
from simia.search_path import data_root
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory
from tests.fake_endpoint import FakeEndpoint
from tests.formats import strategies
from tests.properties import examples

DATA = Path(__file__).parents[1] / "formats" / "data"
FACTS = CardFacts(name="test", licences=["Apache-2.0"])
SEEDS = Pack.load("office").seeds


def write(rows: list[Trajectory], out: Path, to: Any, **more: Any) -> Any:
    return export(rows, out, to=to, facts=FACTS, **more)


def test_parquet_reads_back_as_the_same_trajectories(tmp_path: Path) -> None:
    odd = SEEDS[0].model_copy(
        update={
            "messages": [
                Message(role="user", content=[{"type": "text", "text": "parts"}], extra={"x": [1]}),
                Message(
                    role="assistant",
                    reasoning="why",
                    train=False,
                    calls=[
                        ToolCall(id="a", name="f", arguments={"n": 10**30, "v": None}),
                        ToolCall(id="b", name="g", raw="{"),
                    ],
                ),
                Message(role="tool", content="", call_id="a"),
            ]
        }
    )
    given_rows = [*SEEDS, odd]
    report = write(given_rows, tmp_path, "parquet")
    assert (report.rows, report.exported) == (len(given_rows), len(given_rows))
    assert list(formats.read(tmp_path / "data.parquet")) == given_rows
    table = pq.ParquetFile(tmp_path / "data.parquet")
    assert table.schema_arrow.metadata[b"simia.licences"] == b"Apache-2.0"
    first = table.read().to_pylist()[0]
    assert first["id"] == given_rows[0].id
    assert json.loads(first["messages"][1]["calls"][0]["arguments"]) == given_rows[0].messages[1].calls[0].arguments
    head = yaml.safe_load((tmp_path / "README.md").read_text().split("---")[1])
    assert head["configs"][0]["data_files"] == "data.parquet"


@examples(60)
@given(row=strategies.openai_row())
def test_any_foreign_row_survives_parquet(row: dict[str, Any]) -> None:
    try:
        t = formats.get("openai").read(row)
    except RowError:
        return
    assert Trajectory.from_row(from_table_row(to_table_row(t))) == t


def test_trl_whole_rows_hold_role_and_text_alone(tmp_path: Path) -> None:
    report = write(SEEDS, tmp_path, "trl")
    rows = [orjson.loads(line) for line in (tmp_path / "data.jsonl").read_bytes().splitlines()]
    assert report.rows == len(rows) == len(SEEDS)
    for row, seed in zip(rows, SEEDS, strict=True):
        assert {key for message in row["messages"] for key in message} == {"role", "content"}
        assert all(isinstance(message["content"], str) for message in row["messages"])
        assert "<tools>" in row["messages"][0]["content"]
        said = "".join(message["content"] for message in row["messages"] if message["role"] == "assistant")
        assert all(f'{{"name": "{call.name}"' in said for _, _, call in seed.calls())
        assert sum(m["role"] == "assistant" for m in row["messages"]) == sum(
            m.role == "assistant" for m in seed.messages
        )


def test_trl_rows_of_hermes_rows_have_the_form_of_the_template(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    words = (("user", "hi"), ("assistant", f"{call}\n{call}"), ("tool", "1"), ("tool", "2"), ("assistant", "ok"))
    row = {"conversations": [{"from": role, "value": text} for role, text in words]}
    assert write([formats.get("hermes").read(row)], tmp_path, "trl").rows == 1
    messages = lines_of(tmp_path)[0]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[2]["content"] == "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"


def test_trl_turns_are_a_prompt_and_its_completion(tmp_path: Path) -> None:
    masked = SEEDS[0].model_copy(deep=True)
    masked.messages[1].train = False
    report = write([masked], tmp_path, "trl", segment="turns")
    rows = [orjson.loads(line) for line in (tmp_path / "data.jsonl").read_bytes().splitlines()]
    trained = [m for m in masked.messages if m.role == "assistant" and m.train is not False]
    assert len(rows) == report.trained_turns == len(trained)
    assert all(row["prompt"][0]["role"] == "system" and row["completion"][0]["role"] == "assistant" for row in rows)
    assert rows[-1]["completion"][0]["content"] == masked.messages[-1].text
    assert write([masked], tmp_path / "w", "trl").refused == {"unexpressible": 1}


@pytest.mark.parametrize("name", ["agentinstruct", "officebench"])
def test_a_suites_rows_go_out_as_they_came_in(name: str, tmp_path: Path) -> None:
    told = json.loads((DATA / f"{name}.json").read_text())
    rows = [formats.get(name).read(row) for row in told]
    report = write(rows, tmp_path, name)
    assert report.refused == {}
    assert [orjson.loads(line) for line in (tmp_path / "data.jsonl").read_bytes().splitlines()] == told
    assert write(SEEDS[:1], tmp_path / "other", name).refused == {"unexpressible": 1}


def test_models_of_the_tables_fill_in_weights_and_template(tmp_path: Path) -> None:
    write(SEEDS[:3], tmp_path, "llamafactory", model=ModelEntry.named("llama-3.1-8b"))
    train = yaml.safe_load((tmp_path / "train.yaml").read_text())
    assert (train["model_name_or_path"], train["template"]) == ("meta-llama/Llama-3.1-8B-Instruct", "llama3")
    assert (train["learning_rate"], train["num_train_epochs"], train["cutoff_len"]) == (5.0e-6, 2.0, 12000)
    with pytest.raises(UserError, match="no model is named 'qwen9'"):
        ModelEntry.named("qwen9")
    runs = yaml.safe_load((data_root() / "configs" / "llamafactory" / "runs.yaml").read_text())
    assert len(runs) == 7
    for run in runs.values():
        assert run["data"]
        assert all(ModelEntry.named(model) for model in run["models"])


SHOP, OFFICE = (len(Pack.load(name).seeds) for name in ("customer_service", "office"))


def files(tmp_path: Path) -> list[str]:
    for name, pack in (("shop", "customer_service"), ("work", "office")):
        rows = formats.write(Pack.load(pack).seeds, "simia")
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return [str(tmp_path / "shop.jsonl"), str(tmp_path / "work.jsonl")]


def test_several_sources_are_joined_and_copies_dropped(tmp_path: Path) -> None:
    names = files(tmp_path)
    left_out: Counter[str] = Counter()
    rows = list(drop_duplicates(iterate_trajectories([*names, names[0]], tmp_path), left_out))
    assert len(rows) == SHOP + OFFICE
    assert left_out == {DUPLICATE: SHOP}


def test_a_mix_keeps_its_shares_and_is_the_same_every_time(tmp_path: Path) -> None:
    names = files(tmp_path)
    rows = list(mix_packs(names, tmp_path, {"customer_service": 0.75, "office": 0.25}, 16))
    packs = [t.pack for t in rows]
    assert (packs.count("customer_service"), packs.count("office")) == (12, 4)
    assert packs != sorted(packs, key=str), "interleaved"
    assert rows == list(mix_packs(names, tmp_path, {"customer_service": 0.75, "office": 0.25}, 16))
    whole = list(mix_packs(names, tmp_path, {"customer_service": 0.5, "office": 0.5}, None))
    assert len(whole) == 2 * min(SHOP, OFFICE), "as many as the scarcer pack allows"
    with pytest.raises(UserError, match=f"office has {OFFICE} of 100 wanted"):
        list(mix_packs(names, tmp_path, {"office": 1}, 100))
    with pytest.raises(UserError, match="write it as pack=share"):
        parse_shares(["office"])


@pytest.mark.parametrize("share", ["inf", "nan", "-1"])
def test_a_share_that_is_no_share_is_one_line(tmp_path: Path, share: str) -> None:
    for total in (None, 4):
        with pytest.raises(UserError, match="the share of 'office' is") as error:
            list(mix_packs(files(tmp_path), tmp_path, parse_shares(["customer_service=1", f"office={share}"]), total))
        assert "\n" not in str(error.value)


def test_a_broken_file_of_system_texts_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [1\n b: }")
    with pytest.raises(UserError, match=r"bad.yaml is not YAML: .*line 2, column 3") as error:
        list(set_system(SEEDS[:1], str(tmp_path / "bad.yaml")))
    assert "\n" not in str(error.value)


def test_the_system_text_of_the_deployment(tmp_path: Path) -> None:
    (tmp_path / "shop.txt").write_text("You are Pip.\n")
    (tmp_path / "by_pack.yaml").write_text("customer_service: shop.txt\n")
    shop, work = Pack.load("customer_service").seeds[:1], SEEDS[:1]
    assert [t.system for t in set_system([*shop, *work], str(tmp_path / "shop.txt"))] == ["You are Pip."] * 2
    assert next(set_system(shop, str(tmp_path / "by_pack.yaml"))).system == "You are Pip."
    with pytest.raises(UserError, match="no system text for pack 'office'"):
        list(set_system(work, str(tmp_path / "by_pack.yaml")))
    with pytest.raises(UserError, match="cannot read the system text"):
        list(set_system(shop, str(tmp_path / "gone.txt")))


def test_the_command_takes_files_and_says_what_it_left_out(tmp_path: Path) -> None:
    names = files(tmp_path)
    with open(names[0], "ab") as file:
        file.write(b'\n{"nonsense": 1}\n')
    arguments = ["export", *names, names[1], "--to", "trl", "--segment", "turns", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 0, result.output
    assert f"from {SHOP + OFFICE} of {SHOP + OFFICE} trajectories" in result.output.replace("\n", " ")
    assert f"{OFFICE} are duplicates of others" in result.output
    assert f"not read: 1 bad_row\n  bad_row, first: shop.jsonl:{SHOP + 1}: " in result.output


TARGETS = {
    "llamafactory": 4, "trl": 4, "openai": 4, "hermes": 4, "codegym": 4, "parquet": 4, "hf": 4, "agentinstruct": 0, "officebench": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def bare_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four trajectories whose seeds have no system text."""
    root = tmp_path_factory.mktemp("bare")
    seeds = [t.model_copy(update={"system": None}) for t in Pack.load("customer_service").seeds]
    rows = [orjson.dumps(formats.get("openai").write(seed)) for seed in seeds]
    (root / "seeds.jsonl").write_bytes(b"\n".join(rows))
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    settings = [f"llm.base_url={endpoint.url}", "llm.structured=true"]
    words = [
        "amplify",
        "--seeds",
        str(root / "seeds.jsonl"),
        "--n",
        "4",
        "--name",
        "bare",
        "--runs",
        str(root / "runs"),
    ]
    try:
        done = CliRunner().invoke(build_app(), [*words, *(word for each in settings for word in ("--set", each))])
    finally:
        endpoint.stop()
    assert done.exit_code == 0, f"{done.output[-2000:]}{done.exception!r}"
    return root / "runs"


@pytest.mark.parametrize("segment", ["whole", "turns"])
@pytest.mark.parametrize("to", TARGETS)
def test_a_run_without_system_text_exports(bare_run: Path, tmp_path: Path, to: str, segment: str) -> None:
    if segment == "turns" and to not in ("llamafactory", "trl"):
        return
    words = ["export", "bare", "--runs", str(bare_run), "--to", to, "--segment", segment, "--out", str(tmp_path)]
    done = CliRunner().invoke(build_app(), words)
    if not TARGETS[to]:  # a suite's rows have no place for other tools, with a system text or without
        assert "no row was written: none of 4 trajectories can be exported" in str(done.exception)
        assert not list(tmp_path.iterdir())
        assert "rows have no place for these tools" in done.output
        return
    assert done.exit_code == 0, done.output
    assert "from 4 of 4 trajectories" in done.output
    assert "4 have no system text" in done.output
    assert "refused" not in done.output
    assert "| trajectories without a system text | 4:" in (tmp_path / "README.md").read_text()
    if to == "llamafactory":
        assert {row["system"] for row in lines_of(tmp_path)} == {""}
    elif to == "trl":
        messages = [row.get("messages") or row["prompt"] for row in lines_of(tmp_path)]
        assert all(said[0]["content"].startswith("# Tools") and said[1]["role"] == "user" for said in messages)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "data.jsonl").read_bytes().splitlines()]


def test_a_suites_row_without_a_system_text_goes_out_and_comes_back(tmp_path: Path) -> None:
    dialect = formats.get("agentinstruct")
    rows = [row for row in json.loads((DATA / "agentinstruct.json").read_text()) if row["id"].startswith("os")]
    seeds = [dialect.read(row) for row in rows]
    bare = [t.model_copy(update={"system": None, "extra": {}}) for t in seeds]
    report = write(bare, tmp_path, "agentinstruct")
    assert report.refused == {}
    assert [dialect.read(row).system for row in lines_of(tmp_path)] == [None] * len(bare)


def test_an_export_never_writes_into_a_pack_or_over_a_run(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(Pack.load("office").root or "", pack)
    run = tmp_path / "run"
    run.mkdir()
    (run / "ledger.db").touch()
    before = sorted(tmp_path.rglob("*"))
    for out, words in ((pack, "is a pack"), (pack / "deep" / "er", "is a pack"), (run, "the folder of a run")):
        with pytest.raises(UserError, match=words) as error:
            CliRunner().invoke(build_app(), ["export", str(pack), "--out", str(out)], catch_exceptions=False)
        assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert write(SEEDS[:1], run / "export-trl", "trl").rows == 1, "a folder of the run's own is the default"


def test_an_export_without_a_row_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["export", str(Pack.load("office").root), "--cutoff", "1", "--out", str(out)]
    with pytest.raises(UserError, match=r"no row was written.*mostly over_budget"):
        CliRunner().invoke(build_app(), words, catch_exceptions=False)
    assert not out.exists()
    write(SEEDS[:1], out, "llamafactory")
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError, match="no row was written"):
        CliRunner().invoke(build_app(), words, catch_exceptions=False)
    assert {path: path.read_bytes() for path in out.iterdir()} == before, "an earlier export stays"


@pytest.mark.parametrize("to", ["parquet", "hf"])
def test_a_cutoff_that_has_no_effect_is_said(tmp_path: Path, to: str) -> None:
    words = ["export", str(Pack.load("office").root), "--to", to, "--out", str(tmp_path)]
    done = CliRunner().invoke(build_app(), [*words, "--cutoff", "1"])
    assert done.exit_code == 0, done.output
    assert f"note: --cutoff has no effect with --to {to}" in done.output.replace("\n", " ")
    assert "--cutoff" not in CliRunner().invoke(build_app(), words).output


def make_episode_with_private_calls() -> Trajectory:
    """An episode whose user makes a call of its own, which the agent does not see."""
    call = ToolCall(id="u1", name="toggle_roaming", arguments={})
    private = [
        Message(role="user", calls=[call], visible_to=["user"]),
        Message(role="tool", content="roaming is on", call_id="u1", visible_to=["user"]),
    ]
    words = (("user", "No signal."), ("assistant", "Please switch it."), ("user", "Done."), ("assistant", "Bye."))
    said = [Message(role=role, content=text) for role, text in words]  # type: ignore[arg-type]
    return Trajectory(system="s", messages=[*said[:2], *private, *said[2:]])


@pytest.mark.parametrize("segment", ["whole", "turns"])
@pytest.mark.parametrize("to", TARGETS)
def test_calls_that_the_agent_does_not_see_are_not_trained_on(tmp_path: Path, to: str, segment: str) -> None:
    if (segment == "turns" and to not in ("llamafactory", "trl")) or TARGETS[to] == 0:
        return
    episode = make_episode_with_private_calls()
    assert write([episode], tmp_path, to, segment=segment).refused == {}
    if to in ("parquet", "hf"):
        kept = list(formats.read(tmp_path / "data.parquet" if to == "parquet" else tmp_path))
        assert [t.messages for t in kept] == [episode.messages], "tables hold the whole record"
        return
    text = (tmp_path / "data.jsonl").read_text()
    assert "Please switch it." in text
    assert "roaming" not in text


def test_pairs_for_trl_leave_out_calls_that_the_agent_does_not_see() -> None:
    better = make_episode_with_private_calls()
    worse = better.model_copy(update={"messages": [*better.messages[:-1], Message(role="assistant", content="What?")]})
    row = make_trl_pair(better, worse, reasoning=False)
    assert "roaming" not in json.dumps(row)
    assert row["rejected"] == [{"role": "assistant", "content": "What?"}]


@pytest.mark.parametrize("reasoning", [None, False])
@pytest.mark.parametrize("to", ["parquet", "hf"])
def test_tables_hold_reasoning_unless_it_is_left_out(tmp_path: Path, to: str, reasoning: bool | None) -> None:
    row = {"role": "assistant", "content": "ok", "reasoning": "secret"}
    t = formats.get("openai").read({"messages": [{"role": "user", "content": "hi"}, row]})
    write([t], tmp_path, to, reasoning=reasoning)
    (kept,) = formats.read(tmp_path / "data.parquet" if to == "parquet" else tmp_path)
    assert isinstance(kept, Trajectory)
    assert ("secret" in json.dumps(kept.to_row())) is (reasoning is None)
    words = "left out" if reasoning is False else "kept"
    assert f"| format | {to}, segment `whole`, reasoning {words} |" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("to", ["openai", "hermes", "codegym"])
def test_reasoning_in_fields_of_other_programs_is_left_out(tmp_path: Path, to: str) -> None:
    row = {"role": "assistant", "content": "ok", "thinking": "secret", "reasoning_details": [{"text": "secret"}]}
    twice = {"role": "assistant", "content": "bye", "reasoning": "secret", "reasoning_content": "secret", "note": "n"}
    user = {"role": "user", "content": "hi"}
    t = formats.get("openai").read({"messages": [user, row, user, twice]})
    assert write([t], tmp_path, to).rows == 1
    text = (tmp_path / "data.jsonl").read_text()
    assert "secret" not in text
    assert '"note": "n"' in text, "other fields stay"


def make_answer(
    *, system: str = "s", tool: str = "f", argument: str = "12 34", text: str = "ok", **extra: Any
) -> Trajectory:
    calls = [ToolCall(id=extra.pop("call_id", "c"), name="f", arguments={"x": argument})]
    messages = [
        Message(role="user", content="hi"),
        Message(role="assistant", calls=calls, **extra),
        Message(role="tool", content="r", call_id=calls[0].id),
        Message(role="assistant", content=text),
    ]
    return Trajectory(system=system, tools=[ToolSpec(name=tool, description="d")], messages=messages)


@pytest.mark.parametrize(
    "other",
    [
        make_answer(system="another"),
        make_answer(tool="g"),
        make_answer(argument="1234"),
        make_answer(text="OK"),
        make_answer(train=False),
    ],
)
def test_trajectories_that_are_written_differently_are_all_exported(tmp_path: Path, other: Trajectory) -> None:
    report = simia.export([make_answer(), other], tmp_path, to="trl", segment="turns")
    assert (report.exported, report.left_out) == (2, {})


def test_trajectories_that_are_written_equally_are_exported_once(tmp_path: Path) -> None:
    one, thought, other = make_answer(), make_answer(reasoning="why", call_id="d"), make_answer(system="another")
    assert simia.export([one, thought], tmp_path / "a", to="hermes").left_out == {DUPLICATE: 1}
    assert simia.export([one, thought], tmp_path / "b", to="hermes", reasoning=True).exported == 2
    assert simia.export([one, thought], tmp_path / "c", to="parquet").exported == 2
    (tmp_path / "system.txt").write_text("of the deployment")
    report = simia.export([one, other], tmp_path / "d", to="hermes", system=tmp_path / "system.txt")
    assert (report.exported, report.left_out) == (1, {DUPLICATE: 1})
