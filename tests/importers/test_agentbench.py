"""A shell's machine: our problems in AgentBench's format, what stays between commands, what is judged, what has no form here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli.imports import app
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.importers.agentbench import find_answers, import_problems
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "shell"
OUTPUT, EMPTY = "The output of the OS:\n\n", "The output of the OS is empty."


def machine(folder: Path, *problems: dict[str, Any], scripts: Path | None = None) -> Path:
    source = folder / "problems.json"
    source.write_text(json.dumps(list(problems) or [{"description": "x", "evaluation": {"match": "1"}}]))
    return import_problems([source], folder / "pack", scripts=scripts, train=True)


async def said(environment: Environment, *scripts: str, task: str = "problems-0") -> list[str]:
    """What a shell answers to one script after the other."""
    world = await environment.backend.open(environment.pack.task(task), seed=0, group=None)
    try:
        calls = [ToolCall(id=str(n), name="bash_action", arguments={"script": each}) for n, each in enumerate(scripts)]
        results = [(await world.call([call]))[0] for call in calls]
        assert not [each for each in results if each.error], results
        return [each.content.removeprefix(OUTPUT) for each in results]
    finally:
        await world.close()


async def test_our_problems_are_solved_by_their_solutions_and_by_nothing_else(tmp_path: Path) -> None:
    folder = import_problems([EXAMPLE / "problems.json"], tmp_path / "shell", scripts=EXAMPLE, train=True)
    assert await find_answers(folder) == 5
    async with await open_environment(str(folder), user="none") as environment:
        assert len(environment.tasks) >= 12
        for task in environment.tasks:
            gold = await play(await environment.reset(task), ReferenceAgent(task))
            idle = await play(await environment.reset(task), NothingAgent(task))
            assert (task.id, value(gold), value(idle)) == (task.id, 1.0, 0.0)


def value(trajectory: Trajectory) -> float | None:
    return trajectory.reward.value if trajectory.reward else None


async def test_a_command_starts_where_the_last_one_ended(tmp_path: Path) -> None:
    async with await open_environment(str(machine(tmp_path)), user="none") as environment:
        first = "mkdir -p '/opt/a b'; cd '/opt/a b'; export X=\"two\nlines\"; local_one='$y'; f() { echo \"f $1\"; }; alias g='f g'"
        assert await said(
            environment,
            first,
            'pwd; echo "$X"; echo "$local_one"; f 1; g; exit 7',
            "echo still; pwd; cd /; false",
            "pwd",
        ) == [EMPTY, "/opt/a b\ntwo\nlines\n$y\nf 1\nf g\n", "still\n/opt/a b\n", "/\n"]
        (named,) = await said(environment, "env | grep -c __; whoami; echo ~; umask")
        assert named == "0\nroot\n/root\n0022\n"


async def test_a_call_that_cannot_be_made_leaves_the_shell_as_it_was(tmp_path: Path) -> None:
    async with await open_environment(str(machine(tmp_path)), user="none") as environment:
        world = await environment.backend.open(environment.tasks[0], seed=0, group=None)
        calls = [
            ToolCall(id=str(n), name="bash_action", arguments={"script": script})
            for n, script in enumerate(["cd /opt; A=1", "touch x\0y", "echo $A; pwd"])
        ]
        results = await world.call(calls)
        assert results[1].error is not None
        assert results[2].content == f"{OUTPUT}1\n/opt\n"
        copy = await environment.backend.open(environment.tasks[0], seed=0, group=None, snapshot=await world.snapshot())
        again = ToolCall(id="", name="bash_action", arguments={"script": "echo $A; pwd"})
        assert [each.content for each in await copy.call([again])] == [f"{OUTPUT}1\n/opt\n"]
        await world.close()
        await copy.close()


async def test_what_is_long_hangs_or_waits_for_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = machine(tmp_path)
    tools = folder / "tools.py"
    tools.write_text(tools.read_text().replace("LIMIT = 8.0", "LIMIT = 1.0"))
    async with await open_environment(str(folder), user="none") as environment:
        long, hung, asked, after, both = await said(
            environment, "seq 10000", "cd /opt; echo begun; sleep 30", "read line; echo \"got:$line\"", "pwd", "echo a; echo b >&2; printf '\\e[31mc\\e[0m\\n'"
        )  # fmt: skip
        assert long.startswith("1\n2\n")
        assert long.endswith("\n[truncated because the output is too long]")
        assert hung == "begun\n\n[stopped: it did not end within 1 seconds]"
        assert (asked, after, both) == ("got:\n", "/\n", "a\nb\nc\n")


async def test_programs_of_the_start_run_and_files_are_apart(tmp_path: Path) -> None:
    writer = "(while true; do echo x >> /var/log/tick; sleep 0.05; done) &"
    problem = {
        "description": "x",
        "create": {
            "init": [{"code": "mkdir /srv/a"}, {"language": "python", "code": "open('/srv/a/b', 'w').write('1')"}]
        },
        "start": writer,
        "evaluation": {"match": {"regex": "^t.ck$"}},
    }
    async with await open_environment(str(machine(tmp_path, problem)), user="none") as environment:
        found = await said(
            environment, "cat /srv/a/b; sleep 0.3; wc -l < /var/log/tick", "sleep 0.3; wc -l < /var/log/tick"
        )
        assert found[0].startswith("1")
        assert int(found[1]) > int(found[0].split("\n")[-2].removeprefix("1") or 0) > 1
        assert await said(environment, "rm -r /srv/a; ls /srv") == [EMPTY]
        assert await said(environment, "ls /srv") == ["a\n"]
        episode = await environment.reset(environment.tasks[0])
        step = await episode.step(answer(" tick "))
        assert step.reward is not None
        assert step.reward.value == 1.0


async def test_chance_at_the_start_follows_from_the_seed(tmp_path: Path) -> None:
    draws = "for i in 1 2 3; do echo $RANDOM; done > /srv/drawn"
    folder = machine(
        tmp_path, {"description": "x", "create": {"init": [draws, f"{draws}2"]}, "evaluation": {"match": "1"}}
    )
    async with await open_environment(str(folder), user="none") as environment:
        look = ToolCall(id="", name="bash_action", arguments={"script": "cat /srv/drawn /srv/drawn2"})
        seen = []
        for seed in (0, 0, 1):
            world = await environment.backend.open(environment.tasks[0], seed=seed, group=None)
            seen.append((await world.call([look]))[0].content)
            await world.close()
        assert seen[0] == seen[1] != seen[2]
        assert len(set(seen[0].splitlines())) > 4


def answer(text: str) -> Message:
    return Message(role="assistant", calls=[ToolCall(id="a", name="answer_action", arguments={"answer": text})])


@pytest.mark.parametrize(
    ("evaluation", "given", "reward"),
    [
        ({"match": "12"}, " 12\n", 1.0),
        ({"match": "12"}, "it is 12", 0.0),
        ({"match": {"answer": "12", "strip": False}}, "12 ", 0.0),
        ({"match": {"regex": "1[23]"}}, "the 13th", 1.0),
        ({"check": [None, {"language": "python", "file": "number.py"}], "example": "echo 12"}, "012", 1.0),
        ({"check": [None, {"language": "python", "file": "number.py"}], "example": "echo 12"}, "a dozen", 0.0),
        ({"check": "[ \"$1\" = 12 ] && [ -z \"$2\" ]", "example": "true"}, "12", 1.0),
        ({"check": ["echo $1$1", "[ \"$2\" = $'1212\\n' ]"]}, "12", 1.0),
        ({"check": ["exit 1", "exit 0"]}, "12", 0.0),
    ],
)  # fmt: skip
async def test_what_is_judged(tmp_path: Path, evaluation: dict[str, Any], given: str, reward: float) -> None:
    folder = machine(tmp_path, {"description": "x", "evaluation": evaluation}, scripts=EXAMPLE)
    async with await open_environment(str(folder), user="none") as environment:
        episode = await environment.reset(environment.tasks[0])
        step = await episode.step(answer(given))
        assert step.reward is not None
        assert (step.reward.value, step.reward.error) == (reward, None)


async def test_checks_see_the_agents_files_and_not_the_agents_machine(tmp_path: Path) -> None:
    check = '[ -f /srv/made ] && ! pgrep -x sleep > /dev/null && [ "$PATH" != /nowhere ]'
    folder = machine(tmp_path, {"description": "x", "evaluation": {"check": check, "example": "true"}})
    async with await open_environment(str(folder), user="none") as environment:
        episode = await environment.reset(environment.tasks[0])
        script = "export PATH=/nowhere; echo > /srv/made; (exec /usr/bin/sleep 77) &"
        await episode.step(
            Message(role="assistant", calls=[ToolCall(id="", name="bash_action", arguments={"script": script})])
        )
        step = await episode.step(
            Message(role="assistant", calls=[ToolCall(id="", name="finish_action", arguments={})])
        )
        assert step.reward is not None
        assert step.reward.value == 1.0


async def test_administration_works_as_by_root_in_a_container(tmp_path: Path) -> None:
    folder = machine(tmp_path)
    tools = folder / "tools.py"
    tools.write_text(
        tools.read_text().replace("LIMIT = 8.0", "LIMIT = 60.0")
    )  # the search reads all folders of this machine
    async with await open_environment(str(folder), user="none") as environment:
        search, listed, added = await said(
            environment,
            "find / -path /usr -prune -o -name nothing -print && ls -R /proc > /dev/null; echo $?",
            "ps -eo args; ls /proc | grep -c '^[0-9]'",
            "useradd -m -G sudo,daemon jack && id -Gn jack; ls -d /var/log/dpkg.log /etc/crontab ~/.bashrc /var/spool/cron/crontabs",
        )
        assert search == "0\n"
        commands = listed.splitlines()[1:-1]
        assert all(each.startswith(("/bin/bash --norc", "ps -eo")) for each in commands), listed
        assert len(commands) == 2
        assert added.splitlines()[0] == "jack daemon sudo"
        assert len(added.splitlines()) == 5


async def test_a_check_that_searches_finds_no_second_copy_of_the_first_files(tmp_path: Path) -> None:
    check = '[ "$(find / -path /usr -prune -o -name only_here -print)" = /srv/only_here ]'
    problem = {"description": "x", "create": {"init": "> /srv/only_here"}, "evaluation": {"check": check}}
    async with await open_environment(str(machine(tmp_path, problem)), user="none") as environment:
        episode = await environment.reset(environment.tasks[0])
        step = await episode.step(answer("-"))
        assert step.reward is not None
        assert (step.reward.value, step.reward.error) == (1.0, None)


async def test_reference_solutions_answer_what_their_checks_read(tmp_path: Path) -> None:
    reads = {"code": '[ "$1" = done ]'}
    problems = [
        {"description": "x", "evaluation": {"check": reads, "example": "> /srv/a; echo done"}},
        {
            "description": "x",
            "evaluation": {"check": {"code": "[ -f /srv/a ] && ls / | awk '{print $1}'"}, "example": "> /srv/a"},
        },
        {"description": "x", "evaluation": {"check": [None, reads], "example": "echo part; sleep 9"}},
    ]
    folder = machine(tmp_path, *problems)
    tools = folder / "tools.py"
    tools.write_text(tools.read_text().replace("LIMIT = 8.0", "LIMIT = 2.0"))
    lines: list[str] = []
    await find_answers(folder, lines.append)
    async with await open_environment(str(folder), user="none") as environment:
        ends = [[action.name for action in task.actions] for task in environment.tasks]
        assert ends == [["bash_action", "answer_action"], ["bash_action", "finish_action"], []]
        assert environment.tasks[0].actions[1].arguments == {"answer": "done"}
        assert lines == ["problems-2: its example prints no answer here, so it has no reference solution"]
        for task in environment.tasks[:2]:
            assert value(await play(await environment.reset(task), ReferenceAgent(task))) == 1.0


def test_what_has_no_form_here_is_named(tmp_path: Path) -> None:
    fine = {"description": "x", "evaluation": {"match": "1"}}
    rows = [
        fine,
        {"description": "x", "evaluation": {}},
        {"description": "x"},
        {"description": "x", "create": {"local": "ubuntu"}, "evaluation": {"match": "1"}},
        {"description": "x", "evaluation": {"check": [None, {"file": "a.py"}], "example": "ls"}},
        {"description": "x", "evaluation": {"check": {"language": "c++", "code": ""}}},
        {"description": "x", "evaluation": {"check": [None]}},
        "text",
    ]
    source = tmp_path / "p.json"
    source.write_text(json.dumps(rows))
    done = CliRunner().invoke(app, ["agentbench", str(source), "--out", str(tmp_path / "pack")])
    assert done.exit_code == 0, done.output
    said = done.output.replace("\n", " ")
    for words in (
        "1 task, for evaluation only",
        "neither match nor check",
        "the container image 'ubuntu'",
        "give their folder with --scripts",
        "in c++ cannot be run here",
        "but it has none",
        "does not have the form of a problem",
    ):
        assert words in said
    assert Pack.load(tmp_path / "pack").evaluation


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [("p.json", "{", "not JSON"), ("p.json", "[]", "the files are empty"), ("nowhere.json", None, "cannot be read")],
)
def test_a_file_that_is_none_is_said_in_a_line(tmp_path: Path, name: str, body: str | None, words: str) -> None:
    if body is not None:
        (tmp_path / name).write_text(body)
    with pytest.raises(UserError, match=words):
        import_problems([tmp_path / name], tmp_path / "pack")
    assert not (tmp_path / "pack").exists()
