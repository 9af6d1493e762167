"""Let a model word a missing-parameter variant of a task: the user's words without a value, a question, and the answer (EnvScaler §4).

for needed in list_needed_values(task):
    wording = await ask_withheld_wording(context, task, needed)
    variant = withhold_value(task, needed, wording)
"""

from __future__ import annotations

from simia.authoring.task_variants import NeededValue, WithheldWording, find_wording_fault, read_opening
from simia.envs.users.scripted import matches_question
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.stage import StageContext
from simia.task import Task

PROMPT = "synthesis/withheld_value.j2"


async def ask_withheld_wording(context: StageContext, task: Task, needed: NeededValue) -> WithheldWording:
    """Ask for the wording of a variant in which a value is withheld. Raises `Refused` if no reply can be used."""
    values = {
        "value": needed.value,
        "argument": needed.argument,
        "tool": needed.tool,
        "opening": read_opening(task),
        "instruction": task.instruction,
    }
    return await context.ask(
        PROMPT, values, lambda text: read_wording(text, needed.value), label=f"withhold.{needed.value}"
    )


def read_wording(text: str, value: str) -> WithheldWording:
    """Read a reply. Raises `Unreadable` for words that still name the value, and for a question that `asked` does not match."""
    words: WithheldWording = read_json(text, WithheldWording)
    if fault := find_wording_fault(words, value):
        raise Unreadable(fault)
    if not matches_question(words.asked, words.question):
        raise Unreadable(f"asked {words.asked!r} does not match the question {words.question!r}")
    if matches_question(words.asked, "") or matches_question(words.asked, "Done. Anything else?"):
        raise Unreadable(f"asked {words.asked!r} matches any text: name the key words of the question")
    return words
