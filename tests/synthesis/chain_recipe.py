"""A recipe of three stages for tests of the job side: one question, a group of questions with one that follows from them, and a last one.

As a program it is the `simia` command with this recipe: `python -m tests.synthesis.chain_recipe synth chain --out DIR`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.recipes import RECIPES, RecipeKind
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PROMPTS = Path(__file__).parent / "fixtures" / "core"
PROMPT = "test/chain.j2"
ODD = "w3"  # its first reply cannot be read


class ChainConfig(SynthesisConfig):
    recipe: str = "chain"
    """Name of the recipe."""
    items: int = 6
    """Items of the first stage."""
    samples: int = 3
    """Questions of a group."""


def read_word(text: str) -> str:
    if not text.startswith("word "):
        raise Unreadable("it does not begin with: word")
    return text.removeprefix("word ")


def respond(body: dict[str, Any]) -> str:
    """The reply of the fake endpoint: a word that follows from the prompt; the first reply to `ODD` cannot be read."""
    messages = body["messages"]
    if messages[0]["content"] == f"Name: {ODD}" and len(messages) == 1:
        return "no"
    return f"word {hashlib.sha256(messages[0]['content'].encode()).hexdigest()[:8]}"


async def ask_word(context: StageContext, name: str, label: str) -> str:
    return await context.ask(PROMPT, {"name": name}, read_word, label=label)


class First:
    name = "first"

    def __init__(self, items: int) -> None:
        self.items = items

    def list_inputs(self, outputs: StageOutputs) -> list[StageInput]:
        return [StageInput(f"w{n}", n) for n in range(self.items)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        if given.value == 5:
            raise Refused(Reason.UNVERIFIED, "five is refused without a question")
        return await ask_word(context, given.key, "draft")


class Group:
    name = "group"

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def list_inputs(self, outputs: StageOutputs) -> list[StageInput]:
        return [StageInput(f"{key}/group", word) for key, word in outputs.of("first").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        words = await ask_together(
            *(ask_word(context, f"{given.value} {n}", f"sample{n}") for n in range(self.samples))
        )
        async with context.execution() as folder:
            (folder / "words").write_text(" ".join(words))
            joined = (folder / "words").read_text()
        context.note(words=len(words))
        return {"word": await ask_word(context, joined, "follow"), "of": tuple(words)}


class Last:
    name = "last"

    def list_inputs(self, outputs: StageOutputs) -> list[StageInput]:
        words = [made["word"] for made in outputs.of("group").values()]
        return [StageInput("all", words)] if words else []

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return await ask_word(context, " ".join(given.value), "draft")


class ChainRecipe:
    name = "chain"

    def __init__(self, config: ChainConfig) -> None:
        self.config = config

    def list_stages(self) -> list[Any]:
        return [First(self.config.items), Group(self.config.samples), Last()]

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        folders = []
        for key, made in [*outputs.of("group").items(), *outputs.of("last").items()]:
            folder = out / key
            folder.mkdir(parents=True)
            (folder / "words.txt").write_text(repr(made))
            folders.append(folder)
        return folders


RECIPES["chain"] = RecipeKind(ChainConfig, ChainRecipe)

if __name__ == "__main__":
    from simia.cli import main

    main()
