"""A recipe of your own: unit converters, each written by a model and kept if the sandbox confirms its test.

simia synth examples/converters/recipe.py "km to miles; Celsius to Fahrenheit" --out converters
"""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from simia.authoring.pack_draft import write_pack_files
from simia.authoring.tool_tests import run_tests
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.recipes import RecipeKind
from simia.synthesis.reply_reading import read_json
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

QUESTION = str(Path(__file__).with_name("question.j2"))
CODE = """from pydantic import BaseModel
from simia.kit import Tools, read

class State(BaseModel):
    pass

class Converter(Tools[State]):
    State = State

    @read
    def convert(self, value: float) -> float:
        return round({expression}, 2)
"""


class Draft(BaseModel):
    expression: str
    value: float
    result: float


def write_pack(folder: Path, what: str, draft: Draft) -> None:
    number = {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}
    call = {"name": "convert", "arguments": {"value": draft.value}}
    opening = f"{what}: {draft.value}?"
    script = [{"user": opening}, {"calls": [call]}, {"agent": f"It is {draft.result}."}]
    answer = {"parts": [{"kind": "answer", "expect": [str(draft.result)]}]}
    task = {"id": "convert", "instruction": f"You want {what}.", "opening": opening, "script": script, "reward": answer}
    folder.mkdir(parents=True)
    files = {
        "tools.py": CODE.format(expression=draft.expression),
        "tools.json": [{"name": "convert", "description": f"Convert {what}", "parameters": number}],
        "policy.md": "Convert what the user asks for. Use the tool.",
        "tests.jsonl": [{"name": "example", "call": call, "expect": {"result": draft.result}}],
        "tasks.jsonl": [task],
    }  # fmt: skip
    named = {"policy": "policy.md", "tools": "tools.json", "tests": "tests.jsonl", "tasks": "tasks.jsonl"}
    world = {"code": "tools.py", "object": "Converter", "isolation": "process"}
    about = {"format": 2, "name": folder.name, "description": f"Converts {what}.", **named, "executable": world}
    write_pack_files(folder, {"pack.yaml": about, **files})


class Converters:
    name = "converters"

    def __init__(self, source: str) -> None:
        self.wanted = [each.strip() for each in source.split(";") if each.strip()]

    def list_inputs(self, outputs: StageOutputs) -> list[StageInput]:
        return [StageInput(re.sub(r"\W+", "_", what.lower()), what) for what in self.wanted]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        draft = await context.ask(QUESTION, {"what": given.value}, lambda text: read_json(text, Draft), label="draft")
        async with context.execution() as folder:
            write_pack(folder / given.key, given.value, draft)
            backend = ExecutableBackend(pack := Pack.load(folder / given.key))
            try:
                findings = await run_tests(pack, backend)
            finally:
                await backend.close()
        if findings:
            raise Refused(Reason.UNVERIFIED, str(findings[0]))
        return {"what": given.value, **draft.model_dump()}


class ConverterRecipe:
    name = "converters"

    def __init__(self, config: SynthesisConfig) -> None:
        self.config = config

    def list_stages(self) -> list[Converters]:
        return [Converters(self.config.source)]

    def expected(self) -> dict[str, int]:
        return {"converters": len(Converters(self.config.source).wanted)}

    def write(self, outputs: StageOutputs, out: Path) -> list[Path]:
        for key, made in outputs.of("converters").items():
            draft = Draft.model_validate(made)
            write_pack(out / key, made["what"], draft)
        return [out / key for key in outputs.of("converters")]


RECIPE = RecipeKind(SynthesisConfig, ConverterRecipe)
