"""`--to hf`: `datasets` opens the folder, simia reads it back, and `--push` uploads it to a stand-in of the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
import huggingface_hub
import pytest
import yaml

from simia import formats
from simia.exporting import CardFacts, export, hub_folder
from simia.pack import Pack
from tests.command import run_simia
from tests.hub_server import TOKEN, HubServer, start_hub

SEEDS = Pack.load("office").seeds[:20]
FACTS = CardFacts(name="office", licences=["Apache-2.0"], seeds=["office"], models=["m"])
SOURCE = str(Path(__file__).parents[2] / "seeds" / "office")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with start_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "simia-cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)  # the stand-in has no Xet storage
        yield server


def test_datasets_opens_the_folder_and_saves_it_with_the_same_trajectories(tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export(SEEDS, out, to="hf", facts=FACTS)
    assert report.files == ["data/train-00000-of-00001.parquet", "refused.jsonl", "README.md"]
    assert list(formats.read(out)) == SEEDS
    opened = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert (list(opened), opened["train"].num_rows) == (["train"], len(SEEDS))
    shards = str(out / "data" / "train-*.parquet")
    assert (
        datasets.load_dataset("parquet", data_files=shards, cache_dir=str(tmp_path / "cache"))["train"].num_rows == 20
    )
    opened.save_to_disk(str(tmp_path / "saved"))
    assert list(formats.read(tmp_path / "saved")) == SEEDS


def test_the_card_tells_the_hub_licence_language_size_and_origin(tmp_path: Path) -> None:
    export(SEEDS, tmp_path, to="hf", facts=FACTS)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---")[1])
    assert {key: head[key] for key in ("license", "language", "size_categories")} == {
        "license": "apache-2.0",
        "language": ["en"],
        "size_categories": ["n<1K"],
    }
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert "| seeds or packs | `office` |" in card
    assert "| languages | `en` (20) |" in card


def test_many_shards_and_none_of_an_earlier_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simia.exporting.parquet_table.ROWS", 5)
    monkeypatch.setattr(hub_folder.ShardWriter.__init__, "__defaults__", (100,))
    report = export(SEEDS, tmp_path, to="hf", facts=FACTS)
    assert len(report.files) == 4 + 2
    assert list(formats.read(tmp_path)) == SEEDS
    mine = tmp_path / "data" / "train-mine.parquet"
    mine.write_bytes(b"")
    monkeypatch.setattr(hub_folder.ShardWriter.__init__, "__defaults__", (hub_folder.LARGEST,))
    export(SEEDS[:3], tmp_path, to="hf", facts=FACTS)
    assert [path.name for path in sorted((tmp_path / "data").iterdir())] == [
        "train-00000-of-00001.parquet",
        "train-mine.parquet",
    ]


def test_a_push_makes_a_private_data_set_that_reads_back(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("export", SOURCE, "--to", "hf", "--out", tmp_path / "out", "--push", "acme/office")
    done = run_simia(*words)
    assert (done.returncode, done.stderr.strip()) == (
        2,
        "simia: --push needs a token of the hub in the environment: set HF_TOKEN to one that may write data sets",
    )
    assert not (tmp_path / "out").exists(), "refused before anything is written"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    done = run_simia(*words)
    assert done.returncode == 0, done.stderr
    assert f"uploaded to {hub.url}/datasets/acme/office" in done.stdout
    assert TOKEN not in done.stdout + done.stderr
    made = hub.repositories["acme/office"]
    assert made.private
    _, files = made.files("main") or ("", {})
    assert sorted(files) == ["README.md", "data/train-00000-of-00001.parquet"]
    assert TOKEN.encode() not in b"".join(files.values())
    exported = list(formats.read(tmp_path / "out"))
    assert list(formats.read("hf:acme/office")) == exported


def test_a_public_data_set_is_not_filled_by_accident(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(
        "acme/open",
        {"README.md": b"", "data/train-00000-of-00002.parquet": b"old", "data/train-00001-of-00002.parquet": b"old"},
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    words = ("export", SOURCE, "--to", "hf", "--out", tmp_path / "out", "--push", "acme/open")
    done = run_simia(*words)
    assert done.returncode == 2
    assert "this data set is public: add --public to upload to it" in done.stderr
    done = run_simia(*words, "--public")
    assert done.returncode == 0, done.stderr
    _, files = hub.repositories["acme/open"].files("main") or ("", {})
    assert sorted(files) == ["README.md", "data/train-00000-of-00001.parquet"], "old shards are gone"
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "the hub refused the token (HTTP 401)" in run_simia(*words[:-1], "acme/new").stderr
    assert "--push uploads the folder of --to hf" in run_simia("export", SOURCE, "--to", "trl", "--push", "a/b").stderr
    assert "--push b: write it as OWNER/NAME" in run_simia("export", SOURCE, "--to", "hf", "--push", "b").stderr
