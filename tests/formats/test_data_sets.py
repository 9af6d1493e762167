"""Data sets of the hub (a stand-in answers `huggingface_hub` itself), of `datasets.save_to_disk`, and folders of Parquet shards."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simia import formats
from simia.amplification.seeds import read_pack
from simia.errors import UserError
from simia.formats.data_sets import choose_files, is_data_set, open_data_set
from simia.formats.dialect import RefusedRow
from simia.formats.hub import HubName, parse_hub_name
from simia.pack import Pack
from simia.trajectory import Trajectory
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.hub_server import TOKEN, HubServer, start_hub

SEEDS = Pack.load("customer_service").seeds[:12]
ROWS = list(formats.write(SEEDS, "openai"))
CARD = "---\nlicense: cc-by-4.0\nlanguage: [en]\n---\n# Tickets\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with start_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "simia-cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        yield server


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def contents(found: Iterator[Trajectory | RefusedRow]) -> list[str]:
    return [row.id for row in found if isinstance(row, Trajectory)]


def as_read(rows: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    """The ids of these rows read from JSON lines."""
    file = tmp_path / "as_read.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return contents(formats.read(file))


def test_a_data_set_of_the_hub_is_read_shard_by_shard(hub: HubServer, tmp_path: Path) -> None:
    shards = {
        f"data/train-0000{i}-of-00003.parquet": parquet(ROWS * 5) for i in range(3)
    }  # a dialect is chosen by 50 rows
    commit = hub.add("acme/tickets", {"README.md": CARD.encode(), **shards, "data/test-00000-of-00001.parquet": b"x"})
    rows = formats.read("hf:acme/tickets")
    first = next(rows)
    assert isinstance(first, Trajectory)
    assert first.provenance.source == f"hf:acme/tickets@{commit}:1"
    assert first.provenance.licence == "cc-by-4.0"
    fetched = {path.rpartition("/")[2] for method, path in hub.asked if method == "GET" and "/resolve/" in path}
    assert fetched == {"README.md", "train-00000-of-00003.parquet"}, "the other shards wait until they are needed"
    assert [first.id, *contents(rows)] == as_read(ROWS * 15, tmp_path)


def test_split_revision_and_configuration(hub: HubServer) -> None:
    old = hub.add("acme/tickets", {"en/train-0.parquet": parquet(ROWS[:1])})
    hub.add("acme/tickets", {"en/train-0.parquet": parquet(ROWS[:2]), "de/test-0.parquet": parquet(ROWS[:3])})
    count = lambda name: len(contents(formats.read(name)))  # noqa: E731
    assert count("hf:acme/tickets") == 2
    assert count(f"hf:acme/tickets@{old}") == 1
    assert count("hf:acme/tickets/de:test") == 3
    with pytest.raises(UserError, match=r"no split 'dev'; it has: test, train"):
        formats.read("hf:acme/tickets:dev")
    with pytest.raises(UserError, match="the data set has no such revision"):
        formats.read("hf:acme/tickets@v9")
    with pytest.raises(UserError, match=r"the hub has no such data set, or it is private.*set HF_TOKEN"):
        formats.read("hf:acme/others")
    with pytest.raises(UserError, match="is not the name of a data set; write hf:OWNER/NAME"):
        formats.read("hf:tickets")


def test_a_commit_is_read_again_without_the_hub(hub: HubServer) -> None:
    hub.add("acme/tickets", {"train.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode()})
    pinned = formats.pin_hub_name("hf:acme/tickets")
    before = contents(formats.read(pinned))
    hub.up = False
    assert contents(formats.read(pinned)) == before != []
    with pytest.raises(UserError, match="the hub did not answer as expected"):
        formats.read("hf:acme/tickets")


def test_a_private_data_set_is_read_with_the_token_of_the_environment(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("acme/own", {"train.parquet": parquet(ROWS)}, private=True)
    with pytest.raises(UserError, match="or it is private"):
        formats.read("hf:acme/own")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert len(contents(formats.read("hf:acme/own"))) == len(ROWS)


def test_what_the_hub_converted_is_read_where_there_are_no_readable_files(hub: HubServer) -> None:
    hub.add("acme/old", {"README.md": CARD.encode(), "data.csv": b"a,b"})
    with pytest.raises(UserError, match="no Parquet or JSON files, and the hub has not converted it"):
        formats.read("hf:acme/old")
    files = {"default/train/0000.parquet": parquet(ROWS[:5]), "default/test/0000.parquet": parquet(ROWS[5:])}
    hub.add("acme/old", files, branch="refs/convert/parquet")
    rows = list(formats.read("hf:acme/old"))
    assert len(rows) == 5
    assert all(isinstance(row, Trajectory) and row.provenance.licence == "cc-by-4.0" for row in rows)


def test_folders_that_datasets_saved(tmp_path: Path) -> None:
    train = datasets.Dataset.from_list(ROWS)
    train.info.license = "mit"
    train.save_to_disk(str(tmp_path / "one"), num_shards=3)
    rows = list(formats.read(tmp_path / "one"))
    assert contents(iter(rows)) == as_read(ROWS, tmp_path)
    assert all(isinstance(row, Trajectory) and row.provenance.licence == "mit" for row in rows)
    both = datasets.DatasetDict({"train": train, "test": train.select(range(2))})
    both.save_to_disk(str(tmp_path / "both"))
    assert len(contents(formats.read(tmp_path / "both"))) == len(ROWS)
    assert len(contents(formats.read(tmp_path / "both" / "test"))) == 2
    datasets.DatasetDict({"a": train, "b": train}).save_to_disk(str(tmp_path / "odd"))
    with pytest.raises(UserError, match=r"odd has no split train: give the folder of one, such as .*odd/a"):
        formats.read(tmp_path / "odd")


def test_a_cached_snapshot_and_a_plain_folder_of_shards(tmp_path: Path) -> None:
    cached = tmp_path / "datasets--acme--tickets"
    for name, rows in (("old", ROWS[:1]), ("new", ROWS)):
        folder = cached / "snapshots" / name / "data"
        folder.mkdir(parents=True)
        (folder / "train-00000-of-00001.parquet").write_bytes(parquet(rows))
    with pytest.raises(UserError, match="holds 2 snapshots and no refs/main"):
        formats.read(cached)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("new")
    assert len(contents(formats.read(cached))) == len(ROWS)
    pack, refused = read_pack(str(cached), None, limit=3)
    assert (pack.name, len(pack.seeds), refused) == ("tickets", 3, [])
    assert not is_data_set(tmp_path / "nothing")
    assert not is_data_set("customer_service")
    (cached / "ledger.db").touch()
    assert not is_data_set(cached), "a run's folder, with exports in it, is a run"


def test_nulls_of_structs_are_no_arguments_and_a_bad_row_costs_itself_only(tmp_path: Path) -> None:
    calls = [{"name": "get", "arguments": {"id": "A1"}}, {"name": "list", "arguments": {"page": 2}}]
    tools = [{"name": "get", "parameters": {}}, {"name": "list", "parameters": {}}]
    made = [
        {"messages": [{"role": "user", "content": "Go on."}, {"role": "assistant", "tool_calls": [{"function": call}]}]}
        for call in calls
    ]
    file = tmp_path / "calls.parquet"
    pq.write_table(pa.Table.from_pylist([{**row, "tools": json.dumps(tools)} for row in made]), file)
    found = [call.arguments for t in formats.load_trajectories(file) for _, _, call in t.calls()]
    assert found == [{"id": "A1"}, {"page": 2}]
    rows = [ROWS[0], {**ROWS[1], "messages": [{"role": "judge", "content": "?"}]}, ROWS[2]]
    texts = [
        {"messages": [{"role": m["role"], "content": m.get("content")} for m in row["messages"]], "tools": row["tools"]}
        for row in rows
    ]
    file.write_bytes(parquet(texts))
    assert [type(row).__name__ for row in formats.read(file)] == ["Trajectory", "RefusedRow", "Trajectory"]
    file.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match=r"calls.parquet cannot be read as Parquet: "):
        formats.read(file)


def test_names_and_splits() -> None:
    assert parse_hub_name("hf:a/b/c@refs/pr/1:test") == HubName("a/b", "c", "refs/pr/1", "test")
    assert str(parse_hub_name("hf:a/b.c-d@v1")) == "hf:a/b.c-d@v1"
    card = "---\nconfigs:\n- config_name: x\n  data_files:\n  - split: gold\n    path: ['a/*.parquet']\n---\n"
    files = ["a/1.parquet", "a/2.parquet", "b/1.parquet"]
    assert choose_files("s", files, card, "gold") == ("a/1.parquet", "a/2.parquet")
    assert choose_files("s", files, "") == tuple(files), "without names of splits, all files are train"
    assert choose_files("s", ["train/a.parquet", "valid/a.parquet"], "", "validation") == ("valid/a.parquet",)
    with pytest.raises(UserError, match="no data file of the configuration y"):
        choose_files("s", files, "", config="y")


def test_seeds_of_the_hub_in_a_dry_run(hub: HubServer) -> None:
    unknown = [{**ROWS[0], "messages": [{"role": "judge", "content": "?"}]}]
    rows = [*map(json.dumps, [*ROWS, *unknown])]
    hub.add("acme/tickets", {"train.jsonl": "\n".join(rows).encode()})
    done = run_simia("amplify", "--seeds", "hf:acme/tickets", "--dry-run", "-c", "amplify/default")
    assert done.returncode == 0, done.stderr
    assert "12 seeds of 13 read; refused: 1 " in done.stderr
    assert "first: hf:acme/tickets:13: " in done.stderr


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    many = [{**row, "tools": json.dumps(row["tools"])} for _ in range(100) for row in ROWS]
    file = tmp_path / "many.parquet"
    with pq.ParquetWriter(file, pa.Table.from_pylist(many).schema) as writer:
        for _ in range(4):
            writer.write_table(pa.Table.from_pylist(many))
    rows = open_data_set(tmp_path).rows(formats.RowLimits())
    for _ in range(300):
        next(rows)
    held = pa.total_allocated_bytes()
    for _ in range(3000):
        next(rows)
    assert pa.total_allocated_bytes() < held + (4 << 20)


def test_a_run_names_the_commit_and_is_resumed_without_the_hub(
    hub: HubServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    commit = hub.add("acme/tickets", {"README.md": CARD.encode(), "train.jsonl": text})
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    request.addfinalizer(endpoint.stop)
    settings = ("-c", "amplify/default", "--set", f"llm.base_url={endpoint.url}", "--runs", tmp_path / "runs")
    done = run_simia("amplify", "--seeds", "hf:acme/tickets", "--n", "3", "--name", "a", *settings)
    assert done.returncode == 0, done.stderr
    assert "12 seeds of 12 read" in done.stderr
    hub.add("acme/tickets", {"train.jsonl": text[:10]})
    hub.up = False
    done = run_simia("runs", "resume", "a", "--n", "5", "--runs", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    done = run_simia("export", "a", "--to", "trl", "--out", tmp_path / "out", "--runs", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "train.parquet").write_bytes(parquet(ROWS))
        done = run_simia("export", "a", "--to", "trl", "--out", "again")
        assert "from 5 of 5 trajectories" in done.stdout, "a run's id means the run"
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| seeds or packs | `hf:acme/tickets@{commit}`, `tickets` |" in card
    assert "license: cc-by-4.0" in card


def test_a_pack_starts_from_a_data_set(hub: HubServer, tmp_path: Path) -> None:
    hub.add("acme/tickets", {"train.parquet": parquet(ROWS)})
    done = run_simia("pack", "new", tmp_path / "desk", "--from", "hf:acme/tickets")
    assert done.returncode == 0, done.stderr
    assert len(Pack.load(tmp_path / "desk").seeds) == len(ROWS)
