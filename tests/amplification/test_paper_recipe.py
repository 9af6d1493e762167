"""The paper's recipe: its configs judge the seeds first, and thoughts that a prompt demands are checked, kept and trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.model_mix import Writer
from simia.amplification.session import load_seeds, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.config import load_config
from simia.errors import Code
from simia.jobs import Item, Run
from simia.llm.types import Reply
from simia.quality.judging.rubric import Rubric
from tests.quality.judging.fakes import said

DATA = Path("tests/formats/data")
PAPER = ("tau2-90k", "officebench-30k", "agentbench-15k")
OFFICE = [f"seeds.packs=[{DATA / 'officebench.json'}]", "select.benchmarks={}"]


def office(*settings: str) -> Simulator:
    config = load_config(AmplifyConfig, "amplify/officebench-30k", [*OFFICE, *settings])
    return Simulator(config, load_seeds(config), writers=[Writer("fake", "fake", structured=True)])


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_configs_judge_the_seeds_and_ask_for_thoughts(name: str) -> None:
    config = load_config(AmplifyConfig, f"amplify/{name}", [])
    assert config.prefilter.enabled
    assert list(Rubric(config.prefilter).dimensions) == ["completeness", "logic", "format"]
    assert config.reply.reasoning


def reply(*, thoughts: bool) -> str:
    """An office task with two apps, in the JSON form."""
    thought = {"reasoning": "The next app."} if thoughts else {}

    def act(name: str, arguments: dict[str, Any], result: str) -> list[dict[str, Any]]:
        call = {"role": "assistant", **thought, "calls": [{"name": name, "arguments": arguments}]}
        return [call, {"role": "tool", "content": result}]

    opened = "Successfully switched to app: {}\nActions: {}"
    return json.dumps(
        {
            "messages": [
                {"role": "user", "content": "Read stock.xlsx and mail the number of lamps to Ivo, subject Lamps."},
                *act("system.switch_app", {"target_app": "excel"}, opened.format("excel", "read_file, set_cell")),
                *act(
                    "excel.read_file",
                    {"file_path": "/testbed/data/stock.xlsx"},
                    "The following is the table from the excel file:\n(1, 1): lamps\t(1, 2): 31\t",
                ),
                *act("system.switch_app", {"target_app": "email"}, opened.format("email", "send_email, list_emails")),
                *act(
                    "email.send_email",
                    {"sender": "Nadia", "recipient": "Ivo", "subject": "Lamps", "content": "31 lamps"},
                    "Successfully sent email to Ivo.",
                ),
                {"role": "assistant", **thought, "content": "None"},
            ]
        }
    )


def judge(simulator: Simulator, text: str) -> Any:
    return simulator.judge(simulator.item(0), Reply(text=text, finish="stop"), keys=[], files={})


def test_a_thought_that_the_prompt_demands_is_checked_and_kept() -> None:
    result = judge(office(), reply(thoughts=True))
    assert result.issues == []
    thoughts = [bool(m.reasoning) for m in result.trajectory.messages if m.role == "assistant"]
    assert thoughts == [True] * 5
    stored = json.loads(result.body())["trajectory"]["messages"]
    assert sum("reasoning" in row for row in stored) == 5

    result = judge(office(), reply(thoughts=False))
    assert [issue.code for issue in result.issues] == [Code.BREAKS_SUITE] * 4
    assert "reasoning" in result.issues[0].detail
    assert judge(office("reply.reasoning=false"), reply(thoughts=False)).issues == []


def test_the_schema_of_a_suite_with_thoughts_requires_them() -> None:
    def find_required(simulator: Simulator) -> list[list[str]]:
        schema = simulator.request(simulator.item(0)).response_format
        assert schema is not None
        turns = schema["json_schema"]["schema"]["properties"]["messages"]["items"]["anyOf"]
        return [turn["required"] for turn in turns if "calls" in turn["properties"]]

    assert all("reasoning" in required for required in find_required(office()))
    assert not any("reasoning" in required for required in find_required(office("suite=generic")))


def test_an_office_prompt_calls_no_text_json_and_tells_what_its_apps_print() -> None:
    for form in ("json", "tagged"):
        simulator = office(f"reply.form={form}")
        messages = simulator.prompt(Item("i000000", 0, simulator.item(0).spec)).messages
        text = "\n".join(str(message["content"]) for message in messages)
        assert "the result of one call, as JSON" not in text
        assert "What these apps print:" in messages[-1]["content"]
        assert "What these apps print:" not in messages[0]["content"], "the static part is the same for every target"


async def test_the_seeds_may_be_judged_in_a_batch(tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    settings = [*OFFICE, "llm.kind=batch", "llm.model=o4-mini", f"llm.folder={folder}", "n=1", "stop.attempts=1"]
    config = load_config(AmplifyConfig, "amplify/officebench-30k", settings)
    made = await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    assert made.stop.kind == "batch"
    assert "3 questions about the seeds to answer in requests-0001.jsonl" in made.stop.detail
    rows = [json.loads(line) for line in (folder / "requests-0001.jsonl").read_text().splitlines()]
    verdicts = [said(completeness=True, logic=number != 1, format=True) for number in range(3)]
    answers = [{"custom_id": row["custom_id"], "text": text} for row, text in zip(rows, verdicts, strict=True)]
    (folder / "results" / "a.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (made.stop.kind, "1 question waits" in made.stop.detail) == ("batch", True), made.stop
    run = Run.read_only(tmp_path, "r")
    used = (run.ledger.meta("seeds") or {})["used"]
    run.close()
    assert len(used) == 2, "the judge refused one"
