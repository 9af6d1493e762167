"""Variants of tasks that a model writes: the possible changes, the parser of a reply, and the task that is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import Field

from simia.authoring.task_variants import NeededValue
from simia.envs.users.scripted import matches_question
from simia.pack import Pack
from simia.reward_spec import AnswerSpec, RewardSpec, StateSpec, StrictModel
from simia.state import merge_patch
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.scenarios.solution_runs import MOST_CALLS
from simia.task import Action, ScriptTurn, Task, WithheldFact

TaskChange = Literal["dependent_call", "distractor", "policy_condition", "withheld_fact", "easier"]
EASIER: TaskChange = "easier"
VARIED = "varied"
"""Tag of every variant."""
DEMANDS: dict[TaskChange, str] = {
    "dependent_call": "Harder, by one more dependent call. The solution has more calls than now. At least one call takes a value that only the "
    "result of an earlier call gives: neither the user's words nor the instruction name it.",
    "distractor": "Harder, by distractors. `patch` adds rows to the start that look like those that the user means, at least two. The "
    "user's words still fit exactly one outcome, but an assistant that takes the first row that looks right ends with another "
    "one. Where the user names the key of a row, describe the row in place of it.",
    "policy_condition": "Harder, by a condition. A rule of the policy, or of a tool's description, decides what is right here: with the rule the "
    "outcome is another one than without it. `rule` quotes that rule word for word. The user does not mention the rule, and says what is "
    "wanted in both cases. The state at the start must make the condition matter; change it with `patch` if needed.",
    "withheld_fact": "Harder, by a withheld fact. The user leaves out one value that is an argument of a call, and says it only when the "
    "assistant asks. Fill in `withheld`. No tool returns that value to a caller who does not know it, and it cannot be guessed.",
    "easier": "Easier. The same kind of wish with fewer calls, or with fewer decisions: the user says what the assistant had to find out, "
    "wants one thing less, or the start leaves nothing to compare. It still takes at least one call.",
}
"""Change → requirements on a variant, for its prompt."""


class WithheldValue(StrictModel):
    """What the user says only when asked."""

    value: str = Field(min_length=2)
    """The value, as the call has it."""
    fact: str
    """The user's turn that names it."""
    asked: str
    """A regular expression that matches the question for it."""


class VariantDraft(StrictModel):
    """A variant, as a reply gives it."""

    instruction: str = Field("", max_length=8000)
    """What the user wants and knows."""
    patch: dict[str, Any] = Field(default_factory=dict)
    """JSON merge patch over the start."""
    script: list[ScriptTurn] = Field(min_length=3, max_length=2 * MOST_CALLS)
    """The conversation with the reference solution; `$2.order_id` in a call takes a value of the second result."""
    expect: list[str] = Field(default_factory=list, max_length=8)
    """Values that the assistant's words must contain."""
    rule: str = ""
    """The rule that decides, quoted."""
    withheld: WithheldValue | None = None
    """What is said only when asked."""

    @property
    def opening(self) -> str:
        """The user's first message."""
        return self.script[0].user or ""

    @property
    def calls(self) -> list[Action]:
        """The calls of the script."""
        return [call for turn in self.script for call in turn.calls or []]

    @property
    def needed(self) -> NeededValue | None:
        """The withheld value with the call that needs it; None if no call has it as an argument."""
        for call in self.calls if self.withheld else ():
            for name, given in call.arguments.items():
                if self.withheld and given == self.withheld.value:
                    return NeededValue(call.name, name, given)
        return None


def read_variant_draft(text: str, change: TaskChange, pack: Pack) -> VariantDraft:
    """Read a reply. Raises `Unreadable` with what is wrong."""
    draft: VariantDraft = read_json(text, VariantDraft)
    known = {"agent": {tool.name for tool in pack.tools}, "user": {tool.name for tool in pack.user_tools}}
    if not draft.opening or draft.script[-1].agent is None or not 0 < len(draft.calls) <= MOST_CALLS:
        raise Unreadable(f"script: it starts with the user, ends with the agent, and has 1 to {MOST_CALLS} calls")
    for call in draft.calls:
        if call.name not in known[call.by]:
            raise Unreadable(
                f"script: there is no tool {call.name!r}; the tools are {', '.join(sorted(known[call.by]))}"
            )
    answers = "\n".join(turn.agent or "" for turn in draft.script).casefold()
    if missing := [each for each in draft.expect if each.casefold() not in answers]:
        raise Unreadable(f"expect: the agent's turns do not contain {missing[0]!r}")
    if change == "policy_condition" and not is_quoted(draft.rule, list_rules(pack)):
        raise Unreadable(
            "rule: it is no passage of the policy or of a tool's description; quote at least four words of it, unchanged"
        )
    if (change == "withheld_fact") is (draft.withheld is None):
        raise Unreadable(
            "withheld: this change needs it" if draft.withheld is None else "withheld: this change has null"
        )
    if draft.withheld is not None:
        refuse_bad_withholding(draft, draft.withheld)
    return draft


def refuse_bad_withholding(draft: VariantDraft, part: WithheldValue) -> None:
    """Raise `Unreadable` for a value that is no argument, is named too early, or cannot be asked for."""
    if draft.needed is None:
        raise Unreadable(f"withheld: no call has {part.value!r} as an argument; the value must be one, exactly so")
    place = next((n for n, turn in enumerate(draft.script) if turn.user == part.fact), 0)
    if not place or part.value not in part.fact:
        raise Unreadable(
            "withheld: `fact` must be a later turn of the user in the script, letter by letter, and name the value"
        )
    said = [draft.instruction, *((turn.user or turn.agent or "") for turn in draft.script[:place])]
    if any(part.value.casefold() in words.casefold() for words in said):
        raise Unreadable(f"withheld: {part.value!r} is named before the user is asked for it, or in the instruction")
    question = draft.script[place - 1].agent or ""
    if not matches_question(part.asked, question) or matches_question(part.asked, draft.script[-1].agent or ""):
        raise Unreadable("withheld: `asked` must match the agent's turn before `fact`, and must not match the last one")


def list_rules(pack: Pack) -> list[str]:
    """Texts that state rules: the policy and the tools' descriptions."""
    return [pack.policy or "", *(tool.description for tool in pack.tools)]


def is_quoted(quote: str, texts: Sequence[str]) -> bool:
    """Whether a passage of at least four words occurs in one of the texts; white space is ignored."""
    words = " ".join(quote.split()).casefold()
    return len(words.split()) >= 4 and any(words in " ".join(text.split()).casefold() for text in texts)


def has_state_patches(pack: Pack, task: Task) -> bool:
    """Whether the task's start is a patch of the pack's state; imported worlds may use another form."""
    name = pack.file.state if pack.file else None
    return (name or "").endswith(".json") and set(task.initial) <= {"patch", "state"}


def patch_start(pack: Pack, task: Task, patch: dict[str, Any]) -> dict[str, Any]:
    """The start of a task with a patch on top."""
    if not patch:
        return task.initial
    if not has_state_patches(pack, task):
        changed: dict[str, Any] = merge_patch(task.initial, patch)
        return changed
    if "state" in task.initial:
        return {"state": merge_patch(task.initial["state"], patch)}
    return {"patch": join_patches(task.initial.get("patch", {}), patch)}


def join_patches(first: Any, second: Any) -> Any:
    """Join two merge patches to one with the effect of both in order; values that the second removes are null in it."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second
    return {**first, **{key: join_patches(first.get(key), value) for key, value in second.items()}}


def make_varied_task(pack: Pack, task: Task, change: TaskChange, draft: VariantDraft, calls: Sequence[Action]) -> Task:
    """Make the variant of a task. Its reward judges the final state, and the answer if one is expected. `calls`: the calls of the script with
    literal arguments."""
    spec = next((part for part in task.reward.parts if isinstance(part, StateSpec)), StateSpec())
    literal = iter(calls)
    script = [
        ScriptTurn(calls=[next(literal) for _ in turn.calls]) if turn.calls is not None else turn
        for turn in draft.script
    ]
    plain = is_single_message(pack, task) and draft.withheld is None
    words = {"instruction": draft.opening} if plain else {"instruction": draft.instruction, "opening": draft.opening}
    return Task(
        **words,
        id=f"{task.id}-{change.replace('_', '-')}",
        split=task.split,
        conversation=task.conversation or draft.withheld is not None,
        profile=task.profile,
        initial=patch_start(pack, task, draft.patch),
        script=script,
        tools=task.tools,
        withheld=[WithheldFact(fact=draft.withheld.fact, asked=draft.withheld.asked)] if draft.withheld else [],
        limits=task.limits,
        reward=RewardSpec(
            parts=[StateSpec(policies=spec.policies), *([AnswerSpec(expect=draft.expect)] if draft.expect else [])]
        ),
        tags=[VARIED, "easier"] if change == EASIER else [VARIED, "harder", change],
        extra={"variant_of": task.id},
    )


def is_single_message(pack: Pack, task: Task) -> bool:
    """Whether the user says one message: the task has no conversation, or the pack has no user."""
    return not task.goals and (not task.conversation or pack.user == "none")


CHANGES: tuple[TaskChange, ...] = get_args(TaskChange)
