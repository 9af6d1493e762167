"""The export as a whole: what is written, what is refused and said, and that it appears complete or not at all."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import simia
from simia import formats
from simia.errors import Code, UserError
from simia.exporting import CardFacts, ExportReport, export
from simia.exporting.llamafactory_rows import set_recipe_values
from simia.pack import Pack
from simia.trajectory import ToolCall, Trajectory

FACTS = CardFacts(
    name="Test set", licences=["Apache-2.0"], counts={"accepted": 7, "duplicate": 2}, prompts={"a.j2": "12ab"}
)


def seeds() -> list[Trajectory]:
    """Of the office as it once was: some of its turns hold reasoning."""
    return Pack.load(Path(__file__).parents[1] / "recordings/seeds/office").seeds


def rows(folder: Path, name: str = "data.jsonl") -> list[dict[str, Any]]:
    with (folder / name).open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def run(trajectories: list[Trajectory], out: Path, **options: Any) -> ExportReport:
    return export(trajectories, out, **{"to": "llamafactory", "facts": FACTS, **options})


def with_message(t: Trajectory, n: int, **changes: Any) -> Trajectory:
    messages = list(t.messages)
    messages[n] = messages[n].model_copy(update=changes)
    return t.model_copy(update={"messages": messages})


def test_llamafactory_gets_its_four_files(tmp_path: Path) -> None:
    report = run(seeds(), tmp_path, template="qwen3", reasoning=True, cutoff=9000)
    assert report.rows == report.exported == len(rows(tmp_path)) == len(seeds())
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    recipe = yaml.safe_load((tmp_path / "train.yaml").read_text())
    assert info[recipe["dataset"]]["file_name"] == "data.jsonl"
    assert (tmp_path / recipe["deepspeed"]).is_file()
    assert (recipe["template"], recipe["cutoff_len"], recipe["mask_history"]) == ("qwen3", 9000, False)
    assert set(report.files) == {p.name for p in tmp_path.iterdir()}


def test_the_recipe_is_the_papers(tmp_path: Path) -> None:
    run(seeds(), tmp_path)
    recipe = yaml.safe_load((tmp_path / "train.yaml").read_text())
    paper = {
        "finetuning_type": "full", "learning_rate": 5e-6, "num_train_epochs": 2.0, "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 2, "optim": "adamw_torch", "lr_scheduler_type": "cosine", "warmup_steps": 0,
        "cutoff_len": 12000, "bf16": True, "flash_attn": "fa2", "neat_packing": True, "template": "qwen",
        "save_steps": 50, "train_on_prompt": False,
    }  # fmt: skip
    assert {key: recipe[key] for key in paper} == paper
    assert isinstance(recipe["learning_rate"], float)
    assert json.loads((tmp_path / recipe["deepspeed"]).read_text())["zero_optimization"]["stage"] == 3


def test_segmented_rows_mask_the_history(tmp_path: Path) -> None:
    report = run(seeds(), tmp_path, segment="turns")
    agents = [(t.id, n) for t in seeds() for n, m in enumerate(t.messages) if m.role == "assistant"]
    assert [(row["id"], row["turn"]) for row in rows(tmp_path)] == agents
    assert report.trained_turns == report.rows == len(agents)
    assert yaml.safe_load((tmp_path / "train.yaml").read_text())["mask_history"] is True


def test_qwen3_without_reasoning_adds_no_thinking_blocks(tmp_path: Path) -> None:
    assert run(seeds(), tmp_path, template="qwen3").template == "qwen3_nothink"
    assert yaml.safe_load((tmp_path / "train.yaml").read_text())["template"] == "qwen3_nothink"


def test_reasoning_stays_out_unless_asked_for(tmp_path: Path) -> None:
    run(seeds(), tmp_path / "plain")
    run(seeds(), tmp_path / "thinking", reasoning=True)
    assert "<think>" not in (tmp_path / "plain" / "data.jsonl").read_text()
    assert (tmp_path / "thinking" / "data.jsonl").read_text().count("<think>") == sum(
        bool(m.reasoning) for t in seeds() for m in t.messages
    )


@pytest.mark.parametrize("to", ["llamafactory", "trl"])
def test_thoughts_that_a_suites_prompt_demands_are_trained(tmp_path: Path, to: str) -> None:
    data = Path(__file__).parents[1] / "formats/data/officebench.json"
    office = [formats.get("officebench").read(row) for row in json.loads(data.read_text())]
    report = run([*office, *seeds()], tmp_path / "a", to=to)
    assert "<think>" in (text := (tmp_path / "a" / "data.jsonl").read_text()) or "reasoning_content" in text
    thoughts = [m.reasoning for t in office for m in t.messages if m.reasoning]
    assert all(thought in text for thought in thoughts)
    assert not any(m.reasoning in text for t in seeds() for m in t.messages if m.reasoning), "no other is"
    assert "where the suite's prompt demands it" in (tmp_path / "a" / "README.md").read_text()
    assert report.rows == len(office) + len(seeds())
    run(office, tmp_path / "b", to=to, reasoning=False)
    assert not any(thought in (tmp_path / "b" / "data.jsonl").read_text() for thought in thoughts)


def test_a_refusal_is_counted_listed_and_explained(tmp_path: Path) -> None:
    good, bad = seeds()[0], with_message(seeds()[1], -1, content="<tool_call>")
    report = run([good, bad, bad], tmp_path)
    assert (report.trajectories, report.exported, report.refused) == (3, 1, {"leak": 2})
    assert [issue.code for issue in report.examples] == [Code.LEAK]
    assert [row["id"] for row in rows(tmp_path, "refused.jsonl")] == [bad.id, bad.id]
    card = (tmp_path / "README.md").read_text()
    assert f"| `leak` | 2 | {Code.LEAK.meaning} |" in card
    assert "1 of 3" in card


@pytest.mark.parametrize("to", ["llamafactory", "trl", "openai", "hermes", "codegym"])
def test_what_is_over_the_context_is_refused_not_cut(tmp_path: Path, to: str) -> None:
    longest = run(seeds(), tmp_path / "all", to=to).longest
    report = run(seeds(), tmp_path / "tight", to=to, cutoff=longest + 1)
    assert report.refused == {"over_budget": 1}
    assert run(seeds(), tmp_path / "fits", to=to, cutoff=longest + 2).refused == {}


@pytest.mark.parametrize("to", ["openai", "hermes"])
def test_lengths_of_dialects_are_estimated_as_those_of_the_trainers_rows(tmp_path: Path, to: str) -> None:
    for number, t in enumerate(seeds()):
        one, other = (run([t], tmp_path / f"{form}{number}", to=form).longest for form in ("llamafactory", to))
        assert one <= other * 1.02 <= one * 1.3


@pytest.mark.parametrize("to", ["llamafactory", "trl"])
def test_segmented_rows_are_refused_one_by_one(tmp_path: Path, to: str) -> None:
    lengths = run(seeds()[:1], tmp_path / "a", to=to, segment="turns").longest
    report = run(seeds()[:1], tmp_path / "b", to=to, segment="turns", cutoff=lengths)
    assert (report.exported, report.rows, report.refused) == (1, 1, {"over_budget": 1})


def test_the_callers_own_count_is_used(tmp_path: Path) -> None:
    report = run(seeds()[:1], tmp_path, count=lambda text: 10_000 if "calendar" in text else 0)
    assert report.counted
    assert report.refused == {"over_budget": 1}


@pytest.mark.parametrize("to", ["openai", "hermes"])
def test_chat_dialects(tmp_path: Path, to: Any) -> None:
    report = run(seeds(), tmp_path, to=to)
    assert report.rows == len(rows(tmp_path)) == len(seeds())
    assert set(report.files) == {"data.jsonl", "refused.jsonl", "README.md"}
    assert "three look-ups do not depend" not in (tmp_path / "data.jsonl").read_text()
    run(seeds(), tmp_path, to=to, reasoning=True)
    assert "three look-ups do not depend" in (tmp_path / "data.jsonl").read_text()
    with pytest.raises(UserError, match="segment"):
        run(seeds(), tmp_path, to=to, segment="turns")


def test_openai_rows_exclude_a_turn_by_its_weight(tmp_path: Path) -> None:
    report = run([with_message(seeds()[0], 1, train=False)], tmp_path / "first", to="openai")
    (row,) = rows(tmp_path / "first")
    weights = [turn.get("weight") for turn in row["messages"] if turn["role"] == "assistant"]
    assert (report.refused, weights[0], set(weights[1:])) == ({}, 0, {None})
    assert report.trained_turns == len(weights) - 1
    read = formats.get("openai").read(row)
    run([read], tmp_path / "again", to="openai")
    assert rows(tmp_path / "again") == [row]
    segmented = run([read], tmp_path / "turns", segment="turns")
    assert segmented.rows == len(weights) - 1, "other formats leave it out"


@pytest.mark.parametrize("to", ["hermes", "llamafactory"])
def test_no_format_trains_a_turn_that_must_not_be(tmp_path: Path, to: Any) -> None:
    t = with_message(seeds()[0], 1, train=False)
    assert run([t], tmp_path, to=to).refused == {"unexpressible": 1}
    assert rows(tmp_path) == []


@pytest.mark.parametrize("to", ["openai", "hermes", "llamafactory"])
def test_a_call_that_is_not_json_is_refused(tmp_path: Path, to: Any) -> None:
    t = with_message(seeds()[0], 1, calls=[ToolCall(id="call_1", name="list_events", raw="{date:")])
    assert run([t], tmp_path, to=to).refused == {"unparsable_arguments": 1}


@pytest.mark.parametrize("to", ["openai", "hermes"])
def test_dialects_refuse_an_empty_turn_and_a_call_that_stays_unanswered(tmp_path: Path, to: Any) -> None:
    t = seeds()[0]
    assert run([with_message(t, -1, content=" ")], tmp_path, to=to).refused == {"empty_turn": 1}
    result = next(i for i, message in enumerate(t.messages) if message.role == "tool")
    unanswered = t.model_copy(update={"messages": [*t.messages[:result], *t.messages[result + 1 :]]})
    assert run([unanswered], tmp_path, to=to).refused == {"unpaired_call": 1}
    cut = t.model_copy(update={"messages": t.messages[:result]})
    assert run([cut], tmp_path, to=to).rows == 1, "an episode may end with a call"


@pytest.mark.parametrize("to", ["openai", "hermes", "llamafactory"])
def test_text_that_is_no_unicode_is_refused(tmp_path: Path, to: Any) -> None:
    assert run([with_message(seeds()[0], 0, content="\ud83d")], tmp_path, to=to).refused == {"bad_row": 1}
    assert rows(tmp_path, "refused.jsonl")[0]["id"] is None


def test_the_card_opens_with_what_the_hub_reads(tmp_path: Path) -> None:
    run(seeds(), tmp_path)
    _, head, body = (tmp_path / "README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(head)
    assert front["license"] == "apache-2.0"
    assert front["configs"][0]["data_files"] == "data.jsonl"
    assert front["language"] == ["en"]
    assert f"| languages | `en` ({len(seeds())}) |" in body
    assert "| `duplicate` | 2 |" in body
    assert "`12ab`" in body
    mixed = FACTS.model_copy(update={"licences": ["MIT", "Apache-2.0"]})
    run(seeds(), tmp_path, facts=mixed)
    front = yaml.safe_load((tmp_path / "README.md").read_text().split("---\n", 2)[1])
    assert (front["license"], front["license_name"]) == ("other", "Apache-2.0, MIT")


def test_a_broken_export_leaves_the_earlier_one_alone(tmp_path: Path) -> None:
    run(seeds(), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def torn() -> Iterator[Trajectory]:
        yield seeds()[0]
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="disk"):
        export(torn(), tmp_path, to="llamafactory", facts=FACTS)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    seed = seeds()[0]

    def peak(n: int) -> int:
        tracemalloc.start()
        export((seed.model_copy() for _ in range(n)), tmp_path, to="llamafactory", facts=FACTS)
        _, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return top

    peak(10)
    assert peak(400) < peak(40) + 300_000  # 360 rows more are 5 MB of text


def test_a_recipe_of_the_users_own_keeps_its_other_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "configs" / "llamafactory"
    theirs.mkdir(parents=True)
    (theirs / "sft.yaml").write_text(
        "lora_rank: 8 # small\ndataset: x\ntemplate: y # t\ncutoff_len: 1\nmask_history: true\n"
    )
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path))
    run(seeds(), tmp_path / "out")
    text = (tmp_path / "out" / "train.yaml").read_text()
    assert text == "lora_rank: 8 # small\ndataset: simia\ntemplate: qwen # t\ncutoff_len: 12000\nmask_history: false\n"
    (theirs / "sft.yaml").write_text("dataset: x\n")
    with pytest.raises(UserError, match="template"):
        run(seeds(), tmp_path / "out")


@pytest.mark.parametrize("formats", [("llamafactory", "openai"), ("openai", "llamafactory"), ("trl", "hermes")])
def test_a_folder_holds_the_export_of_one_format(tmp_path: Path, formats: tuple[str, str]) -> None:
    run(seeds()[:1], tmp_path, to=formats[0])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=rf"holds an export of another format \({formats[0]}\); choose another folder"):
        run(seeds(), tmp_path, to=formats[1])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(seeds(), tmp_path, to=formats[0]).rows == len(seeds())


def test_a_folder_with_files_of_the_users_own_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("My notes on the format `openai`\n")
    assert run(seeds()[:1], tmp_path, to="trl").rows == 1


def test_an_edited_recipe_is_kept_with_the_values_of_the_new_rows(tmp_path: Path) -> None:
    recipe = tmp_path / "train.yaml"
    assert run(seeds(), tmp_path).notes == run(seeds(), tmp_path).notes == []
    edited = recipe.read_text().replace("Qwen/Qwen2.5-7B-Instruct", "/weights/mine").replace("5.0e-6", "1.0e-5")
    recipe.write_text(edited)
    (note,) = run(seeds(), tmp_path, segment="turns", cutoff=9000).notes
    assert "train.yaml is kept; only these lines were set: dataset, template, cutoff_len, mask_history" in note
    found = yaml.safe_load(recipe.read_text())
    assert (found["model_name_or_path"], found["learning_rate"]) == ("/weights/mine", 1e-5)
    assert (found["cutoff_len"], found["mask_history"]) == (9000, True)


def test_a_recipe_without_a_needed_line_is_kept_under_another_name(tmp_path: Path) -> None:
    run(seeds(), tmp_path)
    fresh = (tmp_path / "train.yaml").read_text()
    (tmp_path / "train.yaml").write_text("model_name_or_path: mine\n")
    (note,) = run(seeds(), tmp_path).notes
    assert "it is now train.yaml.1" in note
    assert (tmp_path / "train.yaml.1").read_text() == "model_name_or_path: mine\n"
    assert (tmp_path / "train.yaml").read_text() == fresh
    assert run(seeds(), tmp_path).notes == []


def test_values_are_replaced_at_the_top_level_only() -> None:
    assert set_recipe_values("a: 1 # one\nb:\n  a: 2\n", {"a": "3"}) == "a: 3 # one\nb:\n  a: 2\n"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"cannot write to .*file: File exists; choose another folder"):
        export([], tmp_path / "file", to="openai", facts=CardFacts())


def test_an_empty_source_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="source is empty: give a run, a file, a pack or trajectories"):
        simia.export([], tmp_path / "d")
    assert not (tmp_path / "d").exists()
