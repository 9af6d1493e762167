"""Stage `instructions`: write the user and the task for an executed chain (ScaleEnv §4.2.1, Instruction Synthesis).

The chain is executed once more in the initial state in its final form: its changes there are the goal, and decide how columns are compared.
If the recipe has a stage `expansions`, its chains and visible tools are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import Chain, ChainTask, Expansion
from simia.synthesis.chains.chain_prompts import describe_calls
from simia.synthesis.chains.chain_runs import PlayedChain, play_chain
from simia.synthesis.chains.chain_tasks import make_chain_goals, make_chain_task, split_turns
from simia.synthesis.chains.chain_words import ChainWords, Ungrounded
from simia.synthesis.chains.match_policies import derive_policies
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Refused, Unreadable, name_refusal
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario_prompts import describe_domain
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.chains import ChainSettings
from simia.synthesis.stages.states import list_environments
from simia.task import Task

PROMPT = "synthesis/chain_{}.j2"


class Instructions:
    """Ask for the words of each chain's task. The settings are those of the chains."""

    name = "instructions"

    def __init__(self, settings: ChainSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        environments, modes = list_environments(outputs), self._settings.modes
        found = []
        for key, expansion in list_expansions(outputs).items():
            mode = modes[int(key.rpartition("/")[2]) % len(modes)]
            built = environments[expansion["chain"]["environment"]]
            found.append(StageInput(key, {**expansion, "mode": mode, "built": built}))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        value = given.value
        built, chain = BuiltEnvironment.model_validate(value["built"]), Chain.model_validate(value["chain"])
        async with open_sandbox(context, built) as backend:
            played = await play_chain(backend, chain.state, chain.code)
        if self._settings.execution and (played.fault or played.calls != chain.calls):
            raise Refused(Reason.CHAIN_FAILS, played.fault or "executed again, the chain makes other calls")
        made = ChainTask(chain=chain, visible=value["visible"])
        made.policies = derive_policies(built.design.state, chain.state, chain.calls, played.changes)
        await self._add_words(made, built, played, value["mode"], context)
        context.note(mode=value["mode"], turns=len(made.goals) or 1, policies=made.policies)
        return dump(made)

    async def _add_words(
        self, made: ChainTask, built: BuiltEnvironment, played: PlayedChain, mode: str, context: StageContext
    ) -> None:
        chain = made.chain
        words = ChainWords(chain, played.values, built.design.state, list(built.tools))
        turns = split_turns(built, chain.calls, self._settings.turns)
        lines = describe_calls(played.calls, played.values)
        values = {
            **describe_domain(built.design),
            "known": "\n".join(f"- {name}: {value}" for name, value in chain.known.items()) or "nothing in particular",
            "code": chain.code,
            "calls": lines,
        }
        if mode == "goals" and len(turns) > 1:
            rest = iter(lines)
            values["turns"] = [[next(rest, "") for _ in calls] for calls in turns]
            queries = await ask_words(context, "goals", values, partial(words.read_turns, turns=turns))
            made.goals = make_chain_goals(turns, queries)
        elif mode == "non_conversation":
            made.task = await ask_words(context, "plain", values, words.read_plain)
        else:
            made.user = await ask_words(context, "talk", values, words.read_talk)


async def ask_words(context: StageContext, kind: str, values: dict[str, Any], parse: Callable[[str], Any]) -> Any:
    """Ask for the user's words. Raises `Refused`; the reason is `task_ungrounded` if the last reply was refused for its values."""
    last: list[Reason] = []

    def read(text: str) -> Any:
        try:
            return parse(text)
        except Unreadable as error:
            last.append(Reason.TASK_UNGROUNDED if isinstance(error, Ungrounded) else Reason.UNREADABLE_REPLY)
            raise

    with name_refusal(lambda: last[-1]):
        return await context.ask(PROMPT.format(kind), values, read, label=kind)


def list_expansions(outputs: StageOutputs) -> dict[str, dict[str, Any]]:
    """Return key → chain and visible tools: those of the stage `expansions` if the recipe has it; otherwise all tools are visible."""
    if "expansions" in outputs.made or "expansions" in outputs.refused:
        found = {key: Expansion.model_validate(row) for key, row in outputs.of("expansions").items()}
        return {key: {"chain": dump(each.chain), "visible": each.visible} for key, each in found.items()}
    return {key: {"chain": row, "visible": None} for key, row in outputs.of("chains").items()}


class ChainTasks:
    """Tasks of chains, for the stages `verdicts` and `gated`."""

    def list_tasks(self, outputs: StageOutputs) -> dict[str, dict[str, Task]]:
        found: dict[str, dict[str, Task]] = {}
        for key, made in list_chain_tasks(outputs).items():
            found.setdefault(made.chain.environment, {})[key] = make_chain_task(key, made)
        return found

    def list_words(self, outputs: StageOutputs) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for key, made in list_chain_tasks(outputs).items():
            said = [made.task, *(goal.query for goal in made.goals)]
            said += (
                [made.user.instruction, *made.user.knows, *(each.fact for each in made.user.withheld)]
                if made.user
                else []
            )
            found.setdefault(made.chain.environment, {})[key] = "\n".join(each for each in said if each)
        return found


def list_chain_tasks(outputs: StageOutputs) -> dict[str, ChainTask]:
    """Key → what the stage `instructions` made."""
    return {key: ChainTask.model_validate(row) for key, row in outputs.of(Instructions.name).items()}
