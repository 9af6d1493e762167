"""The ledger: what is said to be written is on disk, whoever dies; one process a run; a resume keeps the identity."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simia.amplification.settings import AmplifyConfig
from simia.cli import build_app
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Item, Run, Store, folders
from simia.jobs.database import connect
from simia.jobs.rebuild import salvage
from simia.llm.types import Reply, Request, make_reply_key
from simia.trajectory import Usage


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="r", facts={"model": "m"})


REQUEST = Request(messages=[{"role": "user", "content": "héllo"}], temperature=1.0)


async def test_a_reply_is_on_disk_before_it_is_used(run: Run) -> None:
    key = make_reply_key("a", "m", REQUEST, "i0.0")
    await run.ledger.asked(key, "i0", "i0.0", REQUEST)
    await run.ledger.answered(key, "i0", Reply(text="yes", usage=Usage(prompt=3, completion=2, cost=0.5)))
    # Another process sees it at once: no close, no flush.
    code = (
        "import sys; from pathlib import Path; from simia.jobs import Run\n"
        f"r = Run.read_only(Path({str(run.folder.parent)!r}), 'r'); print(r.ledger.recall({key!r}).text)"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert (await other.communicate())[0].strip() == b"yes"
    usage, statuses = run.ledger.spent()
    assert (usage.prompt, usage.completion, usage.cost, statuses) == (3, 2, 0.5, {"got": 1})
    assert next(run.ledger.replies())["request"]["messages"][0]["content"] == "héllo"


async def test_two_draws_of_one_prompt_are_two_replies(run: Run) -> None:
    for draw, text in (("i0.0", "one"), ("i7.0", "two")):
        key = make_reply_key("a", "m", REQUEST, draw)
        await run.ledger.asked(key, draw[:2], draw, REQUEST)
        await run.ledger.answered(key, draw[:2], Reply(text=text))
    assert [row["reply"]["text"] for row in run.ledger.replies()] == ["one", "two"]


async def test_what_was_in_flight_shows_as_unanswered(run: Run) -> None:
    await run.ledger.asked("k", "i0", "i0.0", REQUEST)
    assert run.ledger.spent()[1] == {"sent": 1}


@pytest.mark.parametrize("how", ["open", "rebuild"])
async def test_a_reply_whose_process_was_killed_before_the_ledger_knew_is_counted(run: Run, how: str) -> None:
    """`replies.db` is committed first. Of two attempts for one reply, only the later one was answered."""
    usage = Usage(prompt=3, completion=2, cost=0.5)
    for key, times in (("k0", 1), ("k1", 2), ("k2", 1)):
        for _ in range(times):
            await run.ledger.asked(key, f"i{key[1]}", f"i{key[1]}.0", REQUEST)
        if key != "k2":
            await run.ledger.answered(key, f"i{key[1]}", Reply(text="yes", usage=usage))
    run.close()
    with contextlib.closing(connect(run.folder / "ledger.db", durable=True)) as ledger:
        ledger.execute(
            "UPDATE attempt SET status = 'sent', prompt = NULL, completion = NULL, cached = NULL, cost = NULL, got_at = NULL, sum = NULL"
        )
    if how == "rebuild":
        salvage(run.folder.parent, "r")
    for _ in range(2):
        with contextlib.closing(Run.open(run.folder.parent, "r")) as opened:
            spent, statuses = opened.ledger.spent()
            assert (spent.prompt, spent.cost, statuses) == (6, 1.0, {"got": 2, "sent": 2})
            assert opened.verify().findings == []


def test_one_process_works_on_a_run(run: Run) -> None:
    with pytest.raises(UserError, match=r"in use by process \d+"):
        Run.open(run.folder.parent, "r")
    run.close()
    Run.open(run.folder.parent, "r").close()


def test_a_second_run_of_the_same_name_is_refused(run: Run) -> None:
    with pytest.raises(UserError, match="simia runs resume r"):
        Run.create(run.folder.parent, load_config(AmplifyConfig, "amplify/default"), name="r", facts={})


def test_a_resume_with_another_identity_names_the_change(run: Run) -> None:
    other = load_config(AmplifyConfig, "amplify/default", ["llm.model=other"])
    with pytest.raises(UserError, match=r"different llm.model: 'gpt-5-mini' → 'other'"):
        run.refuse_other_identity(other, {"model": "m"})
    with pytest.raises(UserError, match="different model: 'm' → 'n'"):
        run.refuse_other_identity(load_config(AmplifyConfig, "amplify/default"), {"model": "n"})


def test_runs_are_found_by_beginning_path_and_last(run: Run, tmp_path: Path) -> None:
    second = Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="s1", facts={})
    second.close()
    run.close()
    assert [f.name for f in folders(tmp_path)] == ["r", "s1"]
    for name in ("last", "s", str(tmp_path / "s1")):
        found = Run.read_only(tmp_path, name)
        assert found.id == "s1"
        found.close()
    with pytest.raises(UserError, match="there is no run 'zz'"):
        Run.read_only(tmp_path, "zz")
    with pytest.raises(UserError, match=r"^no runs in .*nowhere; begin with simia amplify"):
        Run.read_only(tmp_path / "nowhere", "last")


def test_acceptance_is_kept_once_per_content(run: Run) -> None:
    for i in range(3):
        item = Item(f"i{i}", i, {"seed": "x"}, "passed")
        run.ledger.plan(item)
        run.ledger.conclude(item, f"h{i // 2}", {"trajectory": {"n": i}})
        run.ledger.accept(item, f"h{i // 2}")
    run.ledger.flush()
    assert [body["trajectory"]["n"] for body in run.ledger.accepted()] == [0, 2]


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run's folder"):
        Run.create(tmp_path / "file", load_config(AmplifyConfig, "amplify/default"), facts={})


def test_a_file_system_without_locks_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(UserError, match="No locks available; name a folder on a local disk"):
        Store.open(tmp_path / "replies")  # it used to try folder after folder


def test_a_transaction_keeps_everything_or_nothing(run: Run) -> None:
    item = Item("i0", 0, {"seed": "x"}, "passed")
    run.ledger.plan(item)
    run.ledger.accept(item, "old")

    def change(last: Callable[[], object]) -> None:
        with run.ledger.db.transaction():
            run.ledger.clear_acceptances()
            run.ledger.accept(item, "new")
            run.ledger.accept(Item("i1", 1, {}), "newer")
            last()

    with pytest.raises(ZeroDivisionError):
        change(lambda: 1 / 0)
    assert run.ledger.accepted_count() == 1
    change(lambda: None)
    assert run.ledger.accepted_count() == 2
    run.ledger.clear_acceptances()
    with pytest.raises(UserError, match="cannot write the run"):
        change(lambda: run.ledger.db.put("ledger", "no statement"))
    assert run.ledger.accepted_count() == 0, "what was written before it stays"
    run.close()


def test_a_row_that_was_changed_is_noticed_when_it_is_read(run: Run) -> None:
    run.ledger.set_meta("stopped", {"kind": "complete"})
    run.ledger.db.write("ledger", "UPDATE meta SET value = '{}' WHERE name = 'stopped'").result()
    with pytest.raises(
        UserError, match=r"the row of stopped in table meta has changed\); to recover .*: simia runs rebuild"
    ):
        run.ledger.meta("stopped")
    run.close()


async def test_a_verdict_and_its_result_are_written_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that died between them left an item that passed and had no result, which a resume took for a refusal."""
    jobs: list[int] = []
    monkeypatch.setattr(run.ledger.db, "put_all", lambda *statements: jobs.append(len(statements)))
    run.ledger.conclude(Item("i0", 0, {}, "passed"), "h", {"trajectory": None}, tools=["a"])
    assert jobs == [3]
    run.close()


@pytest.mark.attack("the name of a run leads out of the folder of runs, or is read as something else")
@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "../esc",
        "/tmp/esc",
        "last",
        "",
        ".",
        "..",
        ".a",
        "-x",
        "--free",
        "a\nb",
        "a\n",
        "x\x1b[31m",
        "a\0b",
        "é",
        "a b",
        "a" * 101,
    ],
)
def test_a_name_that_a_run_cannot_have_is_one_line(name: str, tmp_path: Path) -> None:
    config = load_config(AmplifyConfig, "amplify/default")
    with pytest.raises(UserError, match="a run cannot be named") as caught:
        Run.create(tmp_path / "runs", config, name=name, facts={})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert not list(tmp_path.rglob("*"))
    for verb in ("amplify", "rollout"):
        done = CliRunner().invoke(build_app(), [verb, f"--name={name}", "--runs", str(tmp_path / "runs")])
        assert isinstance(done.exception, UserError)
        assert "a run cannot be named" in str(done.exception)


@pytest.mark.parametrize("name", ["a", "0", "_x", "a.b-c_D", "fidelity-20260101-abc", "a" * 100])
def test_a_name_that_a_run_can_have(name: str, tmp_path: Path) -> None:
    made = Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name=name, facts={})
    made.close()
    assert [folder.name for folder in folders(tmp_path)] == [name]


def test_a_taken_name_says_which_settings_differ(tmp_path: Path) -> None:
    base = ["n=5", "seeds.packs=[office]"]
    Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default", base), name="r", facts={}).close()
    for changes, words in (
        ([], "continues it, or choose another --name"),
        (["n=11"], "`simia runs resume r --n 11` continues it, or choose another --name; it was made with other settings (n: 5 → 11)"),
        (["n=11", "seed=7"], "`simia runs resume r` continues it, or choose another --name; it was made with other settings (n: 5 → 11; seed: 0 → 7)"),
        (["seeds.packs=[customer_service]"], "other settings (seeds.packs: ['office'] → ['customer_service'])"),
    ):  # fmt: skip
        with pytest.raises(UserError) as caught:
            Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default", [*base, *changes]), name="r", facts={})
        assert str(caught.value).endswith(words)


def test_a_folder_that_is_no_run_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "config.yaml").write_text("a: 1")
    assert not list(folders(tmp_path))
    with pytest.raises(UserError, match="exists: it is not a run: remove it, or choose another --name"):
        Run.create(tmp_path, load_config(AmplifyConfig, "amplify/default"), name="r", facts={})
