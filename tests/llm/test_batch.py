"""The batch: questions written once, answers from anywhere, failures asked again, whole runs in sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.amplification.session import resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import Code, UserError
from simia.jobs import Run
from simia.llm.backends import find_price
from simia.llm.batch_files import BatchBackend, BatchSettings
from simia.llm.engine import Engine, EngineLimits
from simia.llm.prices import Price
from simia.llm.types import DeferredBackend, LLMFault, Reply, Request
from tests.key_forms import FORMS, holds
from tests.replies import trajectory


def settings(folder: Path, **more: Any) -> BatchSettings:
    return BatchSettings(model="gpt-4o-mini", folder=folder, **more)


def prompt(i: int) -> Request:
    return Request(messages=[{"role": "user", "content": f"question {i}"}], temperature=1.0, max_tokens=50)


def lines(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("requests-*.jsonl")):
        for line in path.read_bytes().splitlines():
            yield path.name, orjson.loads(line)


def answered(custom_id: str, text: str) -> dict[str, Any]:
    body = {
        "object": "chat.completion",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
    }
    return {
        "id": "b",
        "custom_id": custom_id,
        "response": {"status_code": 200, "request_id": "r", "body": body},
        "error": None,
    }


def put(folder: Path, name: str, *rows: dict[str, Any] | bytes) -> None:
    raw = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    (folder / "results" / name).write_bytes(b"\n".join(raw) + b"\n")


async def session(folder: Path, n: int, said: list[str] | None = None, **more: Any) -> list[Reply | None]:
    backend = BatchBackend(settings(folder, **more), say=(said if said is not None else []).append)
    await backend.start()
    found: list[Reply | None] = []
    for i in range(n):
        try:
            found.append(await backend.complete(prompt(i), draw=f"i{i}.0"))
        except LLMFault as fault:
            if fault.code is not Code.PENDING or fault.retry:
                raise
            found.append(None)
    await backend.close()
    return found


async def test_a_question_is_written_as_openai_takes_it_and_once(tmp_path: Path) -> None:
    assert await session(tmp_path, 3) == [None] * 3
    assert await session(tmp_path, 3) == [None] * 3
    written = list(lines(tmp_path))
    assert [name for name, _ in written] == ["requests-0001.jsonl"] * 3
    row = written[1][1]
    assert (row["method"], row["url"]) == ("POST", "/v1/chat/completions")
    assert row["body"] == {"model": "gpt-4o-mini", "messages": prompt(1).messages, "temperature": 1.0, "max_tokens": 50}
    assert len({row["custom_id"] for _, row in written}) == 3
    assert len(row["custom_id"]) <= 64


async def test_answers_come_from_any_file_in_any_order_and_new_questions_go_into_a_new_one(tmp_path: Path) -> None:
    await session(tmp_path, 4)
    ids = [row["custom_id"] for _, row in lines(tmp_path)]
    put(tmp_path, "b.jsonl", answered(ids[2], "two"), b"not json", answered("simia-strange", "?"))
    put(
        tmp_path,
        "a.jsonl",
        {"custom_id": ids[0], "text": "by hand"},
        {"id": "x", "custom_id": ids[1], "error": {"code": "expired"}},
    )
    said: list[str] = []
    found = await session(tmp_path, 5, said)
    assert [reply and reply.text for reply in found] == ["by hand", None, "two", None, None]
    assert found[2] is not None
    assert (found[2].usage.prompt, found[2].usage.completion, found[2].finish) == (1000, 500, "stop")
    assert next(row["custom_id"] for name, row in lines(tmp_path) if name == "requests-0002.jsonl") == ids[1]
    assert len([1 for name, _ in lines(tmp_path) if name == "requests-0002.jsonl"]) == 2, (
        "the failed one, and the fifth"
    )
    assert said == [
        f"3 answers in 2 files of {tmp_path / 'results'}; 1 failed and are asked again; 1 answer no question of this folder; "
        "1 lines cannot be read"
    ]
    await session(tmp_path, 5)
    assert not (tmp_path / "requests-0003.jsonl").exists(), "what failed once was asked once more, not at every start"


async def test_answers_that_come_twice_or_are_none_are_told_and_do_no_harm(tmp_path: Path) -> None:
    await session(tmp_path, 2)
    ids = [row["custom_id"] for _, row in lines(tmp_path)]
    failed = {"custom_id": ids[0], "error": {"code": "expired"}}
    put(tmp_path, "a.jsonl", failed, answered(ids[0], "first"), {"custom_id": [1], "text": "x"}, b"[]", b"\xff")
    put(tmp_path, "b.jsonl", answered(ids[0], "second"))
    said: list[str] = []
    found = await session(tmp_path, 2, said)
    assert [reply and reply.text for reply in found] == ["first", None]
    assert said == [f"1 answer in 2 files of {tmp_path / 'results'}; 1 were there already; 3 lines cannot be read"]
    assert len(list(lines(tmp_path))) == 2, "what failed and was then answered is not asked again"


async def test_lost_questions_are_written_again_when_the_user_says_so(tmp_path: Path) -> None:
    await session(tmp_path, 3)
    ids = [row["custom_id"] for _, row in lines(tmp_path)]
    put(tmp_path, "a.jsonl", answered(ids[1], "there"))
    await session(tmp_path, 3, reask=True)
    assert [row["custom_id"] for name, row in lines(tmp_path) if name == "requests-0002.jsonl"] == [ids[0], ids[2]]


async def test_another_models_answer_is_no_answer(tmp_path: Path) -> None:
    await session(tmp_path, 1)
    put(tmp_path, "a.jsonl", answered(next(lines(tmp_path))[1]["custom_id"], "of the small one"))
    other = BatchBackend(BatchSettings(model="gpt-4o", folder=tmp_path))
    await other.start()
    with pytest.raises(LLMFault, match="waits"):
        await other.complete(prompt(0), draw="i0.0")
    await other.close()


async def test_a_question_is_in_its_file_before_anyone_hears_that_it_waits(tmp_path: Path) -> None:
    backend = BatchBackend(settings(tmp_path))
    await backend.start()
    for i in range(2):
        with pytest.raises(LLMFault):
            await backend.complete(prompt(i), draw="d")
        assert len(list(lines(tmp_path))) == i + 1
    await backend.close()


async def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot use the batch's folder"):
        await BatchBackend(settings(tmp_path / "file")).start()
    (tmp_path / "requests-0001.jsonl").write_text('{"custom_id": "x"}\nhello\n')
    with pytest.raises(UserError, match="not a question"):
        await BatchBackend(settings(tmp_path)).start()


async def test_files_keep_the_providers_limits(tmp_path: Path) -> None:
    await session(tmp_path, 5, per_file=2)
    assert [name for name, _ in lines(tmp_path)] == [
        *["requests-0001.jsonl"] * 2,
        *["requests-0002.jsonl"] * 2,
        "requests-0003.jsonl",
    ]


async def test_half_a_line_of_a_killed_session_is_asked_anew(tmp_path: Path) -> None:
    await session(tmp_path, 2)
    path = tmp_path / "requests-0001.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    await session(tmp_path, 2)
    assert len({row["custom_id"] for _, row in lines(tmp_path)}) == len(list(lines(tmp_path))) == 2


async def test_a_status_that_is_no_success_is_no_answer(tmp_path: Path) -> None:
    await session(tmp_path, 1)
    name = next(lines(tmp_path))[1]["custom_id"]
    put(
        tmp_path, "r.jsonl", {"custom_id": name, "response": {"status_code": 500, "body": {"error": {"message": "no"}}}}
    )
    assert await session(tmp_path, 1) == [None]
    assert isinstance(BatchBackend(settings(tmp_path)), DeferredBackend)


@pytest.mark.parametrize(("error", "code"), [("content_filter", Code.CONTENT_FILTER), ("too_long", Code.BAD_REQUEST)])
async def test_a_question_that_was_refused_is_not_asked_for_ever(tmp_path: Path, error: str, code: Code) -> None:
    await session(tmp_path, 2)
    names = [row["custom_id"] for _, row in lines(tmp_path)]
    refusal = {"status_code": 400, "body": {"error": {"message": "this prompt is refused", "code": error}}}
    later = {"status_code": 429, "body": {"error": {"message": "wait", "code": "rate_limit"}}}
    put(
        tmp_path,
        "r.jsonl",
        {"custom_id": names[0], "response": refusal, "error": None},
        {"custom_id": names[1], "response": later, "error": None},
    )
    said: list[str] = []
    backend = BatchBackend(settings(tmp_path), say=said.append)
    await backend.start()
    with pytest.raises(LLMFault, match="this prompt is refused") as refused:
        await backend.complete(prompt(0), draw="i0.0")
    assert (refused.value.code, refused.value.retry) == (code, False)
    with pytest.raises(LLMFault) as waits:
        await backend.complete(prompt(1), draw="i1.0")
    assert waits.value.code is Code.PENDING
    await backend.close()
    assert said == [
        f"0 answers in 1 file of {tmp_path / 'results'}; 1 were refused for good; 1 failed and are asked again"
    ]
    assert [row["custom_id"] for _, row in lines(tmp_path)] == [*names, names[1]]


async def test_a_run_completes_although_the_batch_refuses_some_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    own = ["llm.kind=batch", "llm.model=fake", f"llm.folder={folder}", "seeds.packs=[customer_service]"]
    conf = load_config(AmplifyConfig, "amplify/default", [*own, "reply.form=json"], n=10)
    made = await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    sessions = 1
    while made.stop.kind == "batch":
        asked = [row for name, row in lines(folder) if name == f"requests-{sessions:04}.jsonl"]
        rows = [answered(row["custom_id"], trajectory(row["body"])) for row in asked]
        if sessions == 1:
            refusal = {"status_code": 400, "body": {"error": {"message": "refused", "code": "content_filter"}}}
            rows[:3] = [{"custom_id": row["custom_id"], "response": refusal, "error": None} for row in asked[:3]]
        put(folder, f"{sessions}.jsonl", *rows)
        made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
        sessions += 1
        assert sessions < 12
    assert (made.stop.kind, made.progress.accepted) == ("complete", 10)
    assert made.progress.failed == 3
    written = [row["custom_id"] for _, row in lines(folder)]
    assert len(written) == len(set(written)), "no question was asked twice"


@pytest.mark.attack("an endpoint repeats the key in a reply, to have it stored and shown")
async def test_a_key_in_an_answer_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-batch/0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    await session(tmp_path, len(FORMS))
    asked = [row["custom_id"] for _, row in lines(tmp_path)]
    rows = [answered(name, f"You sent {form(key)}.") for name, form in zip(asked, FORMS.values(), strict=True)]
    put(tmp_path, "a.jsonl", *rows)
    for reply in await session(tmp_path, len(FORMS)):
        assert reply is not None
        assert "***" in reply.text
        assert not holds(reply.model_dump_json(), key)


def test_it_costs_half() -> None:
    found = find_price(settings(Path("x"), price=Price(input=2, cached=1, output=8)))
    assert found == Price(input=1, cached=0.5, output=4)


async def test_reask_holds_for_one_session(tmp_path: Path) -> None:
    own = ["llm.kind=batch", "llm.model=fake", f"llm.folder={tmp_path / 'batch'}", "seeds.packs=[customer_service]"]
    conf = load_config(AmplifyConfig, "amplify/default", own, n=3)
    await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    for changes, files in (({"llm.reask": True}, 2), ({}, 2), ({}, 2)):
        made = await resume_amplification("r", runs=tmp_path, changes=changes, say=lambda _: None)
        assert made.stop.kind == "batch"
        assert len({name for name, _ in lines(tmp_path / "batch")}) == files


async def test_caps_do_not_keep_paid_answers_from_being_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await session(tmp_path, 3)
    rows = [answered(row["custom_id"], "an answer") for _, row in lines(tmp_path)]
    put(tmp_path, "1.jsonl", *rows)
    limits = EngineLimits(max_cost=0.0001, max_tokens=10, max_requests=1)
    async with Engine(BatchBackend(settings(tmp_path)), limits=limits) as engine:
        replies = [await engine.ask(prompt(i), item=f"i{i}", draw=f"i{i}.0") for i in range(3)]
    assert [reply.text for reply in replies] == ["an answer"] * 3
    assert "do not limit a batch" in caplog.text


async def test_a_whole_run_in_sessions(tmp_path: Path) -> None:
    """Written down, answered by another system, judged, the rest written down, until n are accepted."""
    folder = tmp_path / "batch"
    own = [
        "llm.kind=batch",
        "llm.model=fake",
        f"llm.folder={folder}",
        "seeds.packs=[customer_service]",
        "reply.form=json",
    ]
    conf = load_config(AmplifyConfig, "amplify/default", [*own, "llm.price={input: 1, cached: 1, output: 1}"], n=20)
    made = await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    sessions = 1
    while made.stop.kind == "batch":
        assert f"requests-{sessions:04}.jsonl" in made.stop.detail
        asked = [row for name, row in lines(folder) if name == f"requests-{sessions:04}.jsonl"]
        assert len(asked) == 20 - made.progress.accepted - made.progress.waiting, "not one more than can be used"
        put(folder, f"{sessions}.jsonl", *(answered(row["custom_id"], trajectory(row["body"])) for row in asked))
        made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
        sessions += 1
    assert (made.stop.kind, made.progress.accepted) == ("complete", 20)
    assert sessions > 2, "some were refused, and asked for anew"
    run = Run.read_only(tmp_path, "r")
    usage, attempts = run.ledger.spent()
    run.close()
    assert attempts == {"got": made.progress.replies}, "a question that waits is no attempt"
    assert usage.cost == pytest.approx(0.5 * 1500 / 1e6 * made.progress.replies)
