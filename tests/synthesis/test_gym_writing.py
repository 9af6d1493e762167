"""A gym is written as a pack that has no fault, passes the gate, and pays for the right answer alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.envs.environment import EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_provenance import PackProvenance
from simia.synthesis.design import CodingProblem, GymEnvironment, GymInstance, SolvedExample
from simia.synthesis.gyms.answer_comparison import answers_match, write_answer_check
from simia.synthesis.gyms.gym_code import derive_gym_tools
from simia.synthesis.gyms.gym_writing import cut_after_sentence, write_gym
from simia.tool_test import ToolTest
from simia.trajectory import Message, ToolCall
from tests.synthesis.closest_gym import make_closest_gym, make_instance

STRANGE = {
    "word": "true",
    "other": "a@b null",
    "flags": {"null": True, "x@y": False},
    "missing": None,
    "wanted": "null",
}
STRANGE_CODE = '''\
from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class State(BaseModel):
    word: str
    other: str
    flags: dict[str, bool]
    missing: str | None
    wanted: str
    answer: dict[str, bool | str | None] | None = None


class Gym(Tools[State]):
    State = State

    @read
    def observe(self) -> dict:
        """Show how many flags there are."""
        return {"flags": len(self.state.flags)}

    @read
    def get_flag(self, name: str) -> bool:
        """Show a flag.

        Args:
            name: Its name.
        """
        if name not in self.state.flags:
            raise ToolError("there is no such flag")
        return self.state.flags[name]

    @read
    def get_word(self, which: str) -> str | None:
        """Show a word.

        Args:
            which: word, other or missing.
        """
        words = {"word": self.state.word, "other": self.state.other, "missing": self.state.missing}
        if which not in words:
            raise ToolError("which is word, other or missing")
        return words[which]

    @write
    def done(self, answer: dict[str, bool | str | None]) -> dict:
        """Submit the answer.

        Args:
            answer: The flags and words.
        """
        self.state.answer = answer
        self.finish()
        return {"submitted": True}
'''


def make_instances() -> list[GymInstance]:
    return [
        make_instance("easy-01", "easy", [3, 9, 14], 5),
        make_instance("easy-02", "easy", [1, 4, 8, 15, 16], 15),
        make_instance("medium-01", "medium", [-9, -4, 0, 2, 7, 19], 20),
        make_instance("augmented-01", "augmented", list(range(0, 900, 3)), 448),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gym = make_closest_gym()
    test = ToolTest.model_validate(
        {
            "name": "look_up",
            "initial": {"state": {"numbers": [3, 9], "target": 5, "answer": None}},
            "call": {"name": "look_up", "arguments": {"index": 1}},
            "expect": {"result": {"index": 1, "value": 9}},
        }
    )
    write_gym(tmp_path / "closest", gym.model_copy(update={"tests": [test]}), make_instances(), split="test")
    return tmp_path / "closest"


def test_validate_finds_no_fault(folder: Path) -> None:
    findings, facts = asyncio.run(validate_pack(Pack.load(folder)))
    assert [str(finding) for finding in findings if finding.refuses] == []
    assert facts == ["6 tools, 0 of the user's, 4 tasks, 1 test, 0 seeds"]


def test_the_gate_passes_every_task(folder: Path) -> None:
    async def verify() -> Any:
        async with await open_environment(folder, backend="executable") as environment:
            return await verify_tasks(environment, environment.pack.tasks)

    report = asyncio.run(verify())
    assert [str(finding) for verdict in report.verdicts for finding in verdict.findings if finding.refuses] == []
    assert len(report.verdicts) == 4


def test_the_right_answer_is_worth_1_and_anything_else_0(folder: Path) -> None:
    async def play_all() -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        async with await open_environment(folder, backend="executable") as environment:
            environment.limits = EpisodeLimits(turns=600)
            for task in environment.pack.tasks:
                for agent in (ReferenceAgent(task), NothingAgent(task)):
                    reward = (await play(await environment.reset(task), agent)).reward
                    found[f"{task.id} {type(agent).__name__}"] = reward and reward.value
            episode = await environment.reset("easy-01")
            calls = [ToolCall(id=str(answer), name="done", arguments={"answer": answer}) for answer in (14, 3)]
            step = await episode.step(
                Message(role="assistant", calls=calls)
            )  # the second one, which is right, comes too late
            found["wrong answer"] = step.reward and step.reward.value
        return found

    found = asyncio.run(play_all())
    assert {name: value for name, value in found.items() if "Reference" in name} == {
        f"{name} ReferenceAgent": 1.0 for name in ("easy-01", "easy-02", "medium-01", "augmented-01")
    }
    assert {value for name, value in found.items() if "Reference" not in name} == {0.0}


def test_tasks_have_level_split_limits_and_no_input_in_words(folder: Path) -> None:
    tasks = {task.id: task for task in Pack.load(folder).tasks}
    assert {task.split for task in tasks.values()} == {"test"}
    assert [tasks[name].tags for name in ("easy-02", "augmented-01")] == [["easy"], ["augmented"]]
    assert [tasks[name].limits.calls for name in ("easy-02", "augmented-01")] == [256, 512]
    assert tasks["easy-02"].initial == {"state": {"numbers": [1, 4, 8, 15, 16], "target": 15, "answer": None}}
    assert "15" not in tasks["easy-02"].instruction
    pack = Pack.load(folder)
    assert pack.ends == ["done"]
    assert pack.match == {"numbers": "exempt", "target": "exempt", "marked": "exempt"}


def test_nothing_in_the_sandbox_names_the_reference_answer(folder: Path) -> None:
    visible = [folder / "tools.py", folder / "tools.json", folder / "policy.md", folder / "state.json"]
    text = "".join(file.read_text() for file in visible)
    assert "EXPECTED" not in text
    assert '"answer": null' in text
    assert not (folder / "checks.py").exists()


def test_equal_arguments_make_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_gym(tmp_path / name, make_closest_gym(), make_instances(), provenance=PackProvenance(recipe="codegym"))
    files = [sorted((file.name, file.read_bytes()) for file in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert files[0] == files[1]


def test_inputs_and_answers_that_look_like_other_syntax(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {key: {} for key in STRANGE}}
    answer = {"null": True, "true": "a@b null", "none": None}
    problem = CodingProblem(
        id="strange", statement="s", solution="def solve(): ...", inputs=schema,
        examples=[SolvedExample(inputs=STRANGE, answer=answer)],
    )  # fmt: skip
    gym = GymEnvironment(
        problem=problem,
        task="Find them.",
        code=STRANGE_CODE,
        tools=derive_gym_tools(STRANGE_CODE),
        tool_writes=["done"],
    )
    calls = [
        {"name": "get_flag", "arguments": {"name": "x@y"}},
        {"name": "get_word", "arguments": {"which": "missing"}},
        {"name": "done", "arguments": {"answer": answer}},
    ]
    instance = GymInstance(id="easy-01", level="easy", inputs=STRANGE, answer=answer, calls=calls)
    write_gym(tmp_path / "strange", gym, [instance])

    async def run() -> Any:
        async with await open_environment(tmp_path / "strange", backend="executable") as environment:
            (task,) = environment.pack.tasks
            played = await play(await environment.reset(task), ReferenceAgent(task))
            return played.reward, [message.text for message in played.messages if message.role == "tool"]

    reward, results = asyncio.run(run())
    assert reward.value == 1.0
    assert [json.loads(text) for text in results[:2]] == [False, None]


def test_a_null_answer_is_refused(tmp_path: Path) -> None:
    instance = make_instance("easy-01", "easy", [3, 9], 5).model_copy(update={"answer": None})
    with pytest.raises(UserError, match="the answer of easy-01 is null"):
        write_gym(tmp_path / "closest", make_closest_gym(), [instance])


def test_a_gym_without_instances_has_no_tasks(tmp_path: Path) -> None:
    write_gym(tmp_path / "closest", make_closest_gym(), [])
    assert Pack.load(tmp_path / "closest").tasks == []


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (0.1 + 0.2, 0.3, True), (3, 3.0, True), (3, 3.1, False), (True, 1, False), (1, True, False), ("1", 1, False),
        ([1, [2.0]], [1, [2]], True), ([1, 2], [2, 1], False), ({"a": 1}, {"a": 1.0}, True), ({"a": 1}, {"b": 1}, False),
        (None, 0, False), ("true", True, False),
    ],
)  # fmt: skip
def test_answers_are_compared_as_json(found: Any, expected: Any, same: bool) -> None:
    assert answers_match(found, expected) is same
    names: dict[str, Any] = {}
    exec(write_answer_check(expected), names)
    assert names["check"]({"answer": found}, {"answer": None}) is same


def test_a_description_ends_at_the_end_of_a_sentence() -> None:
    assert cut_after_sentence("One. Two and more.", 30) == "One. Two and more."
    assert cut_after_sentence("One. Two and more.", 12) == "One."
    assert cut_after_sentence("One two and more", 10) == "One two …"
