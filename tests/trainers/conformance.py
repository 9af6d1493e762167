"""One suite for every way into an environment: a trainer's own interface must show what the plain `Environment` shows.

A driver is the way in, four verbs on text (see `Driver`). `check(driver, endpoint)` plays scripted policies through it and through the
plain environment, on two packs, by code and by simulation, and returns a line for each check: what went wrong, or nothing. It asserts
no timing and needs no pytest, so that it runs inside a trainer's environment too:

    from tests.trainers.conformance import check
    Path("out.json").write_text(json.dumps(check(MyDriver, "http://127.0.0.1:…/v1")))

The endpoint is `tests.fake_endpoint --respond tests.trainers.conformance:stage`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from simia import event_loop
from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NOTHING, ReferenceAgent
from simia.envs.text_episode import messages_to_text
from simia.envs.users import EpisodeView
from simia.formats import tagged_calls as tagged
from simia.formats.hermes import join_system
from simia.pack import Pack
from simia.trajectory import Message, write_compact_json
from tests import replies
from tests.trainers.outage import break_endpoint, losing, mend_endpoint, plan_endpoint

PACKS, KINDS = ("customer_service", "office"), ("executable", "simulated")


class Driver(Protocol):
    """One trainer's interface. It may be opened and closed many times, several at once."""

    exact: bool
    """Whether observations are `as_text` of the messages to the letter; else each message's content stands in them, in order."""
    shares: bool
    """Whether drivers of one process share what they open."""

    def open(self, stage: dict[str, Any]) -> None:
        """`stage`: a EnvironmentConfig as a mapping."""

    def reset(self, task: str) -> str:
        """Begin an episode of this task, with the stage's seed. What the policy sees first."""

    def act(self, text: str) -> tuple[str, float | None, bool]:
        """What came of the policy's turn; the reward, None before the end and of an aborted episode; whether it has ended."""

    def close(self) -> None: ...


class Plain:
    """The environment itself: what the others are measured by."""

    exact, shares = True, False

    def open(self, stage: dict[str, Any]) -> None:
        self.environment: Environment = event_loop.run(open_environment(stage, say=lambda _: None))
        self.episode: Episode | None = None
        self.contents: list[str] = []

    def reset(self, task: str) -> str:
        if self.episode is not None:
            event_loop.run(self.episode.close())
        self.episode = event_loop.run(self.environment.reset(task, seed=0))
        view, self.turn = self.episode.view, 0
        self.contents = [m.text for m in view.messages]
        head = join_system(view.system, list(view.tools))
        return "\n\n".join([*([] if head is None else [head]), *self.contents])

    def act(self, text: str) -> tuple[str, float | None, bool]:
        assert self.episode is not None
        self.turn += 1
        if self.episode.end is not None:
            return "", self.value, True
        step = event_loop.run(self.episode.step(tagged.read_message(text, f"call_{self.turn}")))
        self.contents = [m.text for m in step.messages]
        return messages_to_text(step.messages), self.value, step.end is not None

    @property
    def value(self) -> float | None:
        assert self.episode is not None
        return self.episode.reward.value if self.episode.reward else None

    def close(self) -> None:
        if self.episode is not None:
            event_loop.run(self.episode.close())
        event_loop.run(self.environment.close())


# -- the cases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A pack, a task of it with parallel calls and words in its solution, and another one."""

    pack: str
    task: str
    other: str
    kind: str
    more: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.pack}, {self.kind}"

    def stage(self, **changes: Any) -> dict[str, Any]:
        return {"pack": self.pack, "backend": self.kind, "user": "scripted", **self.more, **changes}

    def solution(self) -> list[str]:
        """What a policy that knows the reference writes."""
        agent, texts = ReferenceAgent(Pack.load(self.pack).task(self.task)), list[str]()
        for _ in agent._messages:
            message, _ = asyncio.run(agent.act(EpisodeView(None, (), ())))
            texts.append(
                tagged.write_tagged(message.content if isinstance(message.content, str) else None, message.calls) or ""
            )
        return texts


def cases(endpoint: str) -> list[Case]:
    model = {"llm": {"kind": "openai", "base_url": endpoint, "model": "m"}, "limits": {"retries": 0}}
    return [
        Case(pack, task, other, kind, model if kind == "simulated" else {})
        for pack, task, other in (("customer_service", "cs-009", "cs-012"), ("office", "of-208", "of-205"))
        for kind in KINDS
    ]


# -- the checks --------------------------------------------------------------------------------------------------


def solves_like_the_plain_environment(make: Callable[[], Driver], case: Case) -> None:
    opening, turns = plainly(case)
    with opened(make, case.stage()) as driver:
        same(driver, driver.reset(case.task), opening)
        for number, (text, wanted) in enumerate(zip(case.solution(), turns, strict=True), 1):
            heard, reward, done = driver.act(text)
            assert (reward, done) == (wanted.reward, wanted.done), f"turn {number}: {(reward, done)} unlike {wanted}"
            same(driver, heard, wanted)
        assert done, "the solution ends the episode"
        assert reward == 1.0


def nothing_earns_zero(make: Callable[[], Driver], case: Case) -> None:
    with opened(make, case.stage()) as driver:
        driver.reset(case.task)
        assert to_the_end(driver, NOTHING) == 0.0


def a_lost_world_has_no_reward(make: Callable[[], Driver], case: Case) -> None:
    for after in (0, 1):  # lost at its reset, and at its second call
        with losing(case, after) as stage, opened(make, stage) as driver:
            driver.reset(case.task)
            if case.kind == "simulated" and after == 0:
                break_endpoint(case)
            assert to_the_end(driver, *case.solution()) is None
        if case.kind == "simulated":
            mend_endpoint(case)
    with opened(make, case.stage()) as driver:  # and what comes after it is as ever
        driver.reset(case.task)
        assert to_the_end(driver, *case.solution()) == 1.0


def an_end_that_nobody_can_judge_has_no_reward(make: Callable[[], Driver], case: Case) -> None:
    """The judge's endpoint fails, after the tools' has answered every call. No equal episode was judged before, whose verdict would be known."""
    *calls, last = case.solution()
    assert "<tool_call>" not in last
    solution = [*calls, f"{last} It was not judged before."]
    plan_endpoint(case, script=["ok"] * sum("<tool_call>" in text for text in solution), rate=1.0, mix=["500"])
    with opened(make, case.stage()) as driver:
        driver.reset(case.task)
        assert to_the_end(driver, *solution) is None


def a_limit_cuts_and_scores(make: Callable[[], Driver], case: Case) -> None:
    with opened(make, case.stage(episode={"turns": 1})) as driver:
        driver.reset(case.task)
        _, reward, done = driver.act(case.solution()[0])
        assert done
        assert reward == 0.0
    with opened(make, case.stage(episode={"turns": len(case.solution()) - 1})) as driver:
        driver.reset(case.task)
        assert to_the_end(driver, *case.solution()[:-1]) == judged_unfinished(case), (
            "a cut episode is judged as it stands"
        )


def a_group_has_one_task(make: Callable[[], Driver], case: Case) -> None:
    with opened(make, case.stage()) as first, opened(make, case.stage()) as second:
        opening = first.reset(case.task)
        assert second.reset(case.task) == opening
        assert second.reset(case.other) != opening
        assert first.reset(case.task) == opening
        heard = first.act(case.solution()[0])
        second.reset(case.task)
        assert second.act(case.solution()[0]) == heard, "the same turn in the same world is answered the same"


def what_cannot_be_read_is_answered(make: Callable[[], Driver], case: Case) -> None:
    with opened(make, case.stage()) as driver:
        driver.reset(case.task)
        for text in ('<tool_call>\n{"name": "no', '<tool_call>\n{"name": "no_such", "arguments": {}}\n</tool_call>'):
            heard, reward, done = driver.act(text)
            assert (reward, done) == (None, False)
            assert "error" in heard.lower()
        assert driver.act("«é» 漢字 \U0001f600 </tool_response>")[1:] == (None, False)


def closing_twice_is_harmless(make: Callable[[], Driver], case: Case) -> None:
    with opened(make, case.stage()) as stays:
        driver = make()
        driver.open(case.stage())
        driver.reset(case.task)
        driver.act(case.solution()[0])
        driver.close()
        driver.close()
        stays.reset(case.task)  # somebody else's episode goes on
        assert to_the_end(stays, *case.solution()) == 1.0


def a_pack_is_loaded_once(make: Callable[[], Driver], case: Case) -> None:
    if not make().shares:
        return
    load, count = Pack.load, [0]

    def counted(*args: Any, **kwargs: Any) -> Pack:
        count[0] += 1
        return load(*args, **kwargs)

    Pack.load = counted  # type: ignore[method-assign]
    try:
        drivers = [make() for _ in range(4)]
        for driver in drivers:
            driver.open(case.stage())
            driver.reset(case.task)
        for driver in drivers:
            driver.close()
    finally:
        Pack.load = load  # type: ignore[method-assign]
    assert count[0] == 1


HEAVY = ("office", "executable")
"""An episode there has a sandbox with folders of its own, and so has the replay that it is compared with: seconds each."""
ON_HEAVY = [solves_like_the_plain_environment]
CHECKS = [
    a_pack_is_loaded_once,
    solves_like_the_plain_environment,
    nothing_earns_zero,
    a_lost_world_has_no_reward,
    a_limit_cuts_and_scores,
    a_group_has_one_task,
    what_cannot_be_read_is_answered,
    closing_twice_is_harmless,
]
ON_SIMULATED = [an_end_that_nobody_can_judge_has_no_reward]


def check(
    make: Callable[[], Driver], endpoint: str, packs: Sequence[str] = PACKS, kinds: Sequence[str] = KINDS
) -> dict[str, str]:
    """Every check on every case of these: its name and what went wrong; an empty text where nothing did."""
    found = {}
    for case in cases(endpoint):
        if case.pack not in packs or case.kind not in kinds:
            continue
        checks = ON_HEAVY if (case.pack, case.kind) == HEAVY else CHECKS
        checks = checks + (ON_SIMULATED if case.kind == "simulated" else [])
        with ExitStack() as kept:
            for each in checks:
                mend_endpoint(case)
                try:
                    each(make, case)
                    found[f"{each.__name__} ({case})"] = ""
                except Exception:
                    found[f"{each.__name__} ({case})"] = traceback.format_exc()
                if each is a_pack_is_loaded_once and make().shares:  # the others need not start what they share anew
                    kept.enter_context(opened(make, case.stage()))
    return found


# -- what checks need ------------------------------------------------------------------------------------------------


@contextmanager
def opened(make: Callable[[], Driver], stage: dict[str, Any]) -> Iterator[Driver]:
    driver = make()
    driver.open(stage)
    try:
        yield driver
    finally:
        driver.close()


@dataclass(frozen=True)
class Shown:
    """What the plain environment showed at one turn."""

    text: str
    contents: list[str]
    reward: float | None = None
    done: bool = False


@functools.cache
def plainly(case: Case) -> tuple[Shown, list[Shown]]:
    """The solution played in the plain environment: what a reset and each turn of it showed."""
    with opened(Plain, case.stage()) as plain:
        assert isinstance(plain, Plain)
        opening = Shown(plain.reset(case.task), plain.contents)
        turns = []
        for text in case.solution():
            heard, reward, done = plain.act(text)
            turns.append(Shown(heard, plain.contents, reward, done))
    return opening, turns


def same(driver: Driver, found: str, wanted: Shown) -> None:
    if driver.exact:
        assert found == wanted.text, f"{found!r}\nin place of\n{wanted.text!r}"
        return
    at = 0
    for content in wanted.contents:
        place = found.find(content, at)
        assert place >= 0, f"{content!r} does not stand in {found[at:]!r}"
        at = place + len(content)


def to_the_end(driver: Driver, *texts: str) -> float | None:
    """The reward of an episode that says this, and goes on with its last words."""
    for number in range(60):
        _, reward, done = driver.act(texts[min(number, len(texts) - 1)])
        if done:
            return reward
        assert reward is None, "a reward before the end"
    raise AssertionError("60 turns, and no end")


def judged_unfinished(case: Case) -> float:
    """By the rules and the judge alike all calls were made before the last words; an answer that was never given is missed."""
    task = Pack.load(case.pack).task(case.task)
    return 0.0 if case.kind == "executable" and any(part.kind == "answer" for part in task.reward.parts) else 1.0


def stage(body: dict[str, Any]) -> str | dict[str, Any]:
    """The endpoint's part: every call is answered, and the judge passes what made all the calls of the solution."""
    system, last = str(body["messages"][0]["content"]), str(body["messages"][-1]["content"])
    if not system.startswith("You judge"):
        return replies.stage(body)
    wanted, _, happened = last.partition("# A solution that is right")[2].partition("# What happened")
    lines = wanted.partition("\n\n")[0].strip().splitlines()
    calls = [line[2:] for line in lines if line.startswith("- ")]  # results of calls stand below them
    turns = [json.loads(line) for line in happened.splitlines() if line.startswith('{"turn": ')]
    made = [
        f"{call['name']} {write_compact_json(call.get('arguments'))}"
        for turn in turns
        for call in turn.get("calls", [])
    ]
    return json.dumps({"why": "compared", "solved": all(call in made for call in calls)})


def rows_as_text(rows: list[dict[str, str]]) -> str:
    """Chat rows in the words of `as_text`, for drivers of interfaces that speak in rows."""
    return messages_to_text([Message.model_validate({"role": row["role"], "content": row["content"]}) for row in rows])
