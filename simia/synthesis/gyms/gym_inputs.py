"""Test inputs of coding problems: made by generated code in the sandbox, and answered by the problem's solution (CodeGym §3.3.2)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.formats.dialect import dump_json
from simia.synthesis.design import CodingProblem
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionLimits, FunctionRunner
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import list_blocks, read_json, read_python
from simia.synthesis.stage import StageContext
from simia.tool import compile_schema

INPUTS = "inputs"
SOLVE = "solve"
LITERAL = "import json\n\n\ndef inputs():\n    return json.loads({text!r})\n"


class InputSettings(Config):
    """How inputs are made and answered (CodeGym §3.3.2)."""

    repairs: int = Field(default=1, ge=0)
    """Maximum number of further requests if the model's code makes no inputs."""
    longest_answer: int = Field(default=100, ge=1)
    """Maximum number of characters of an answer, as JSON."""
    limits: FunctionLimits = Field(default_factory=FunctionLimits)
    """Limits of one run of the reference solution, and of the code that makes inputs."""


@dataclass(slots=True)
class AnsweredInputs:
    """Valid inputs with their answers by position, and what was wrong with the others."""

    valid: dict[int, tuple[dict[str, Any], Any]] = field(default_factory=dict)
    """Position in the list → (inputs, answer)."""
    faults: Counter[str] = field(default_factory=Counter)
    """What is wrong → number of inputs."""
    first_fault: str = ""
    """The first of these with its detail."""
    seen: set[str] = field(default_factory=set)
    """All inputs as text, for duplicates."""

    @property
    def proposed(self) -> int:
        """Different inputs, valid or not."""
        return len(self.valid) + self.faults.total()

    def add_fault(self, name: str, detail: str) -> None:
        self.faults[name] += 1
        self.first_fault = self.first_fault or f"{name}: {detail}"[:300]


def read_inputs_code(text: str) -> str:
    """Return Python that defines `inputs`; a JSON block becomes such code. Raises `Unreadable`."""
    blocks = list_blocks(text)
    if blocks and blocks[-1][0] == "json":
        return LITERAL.format(text=dump_json(read_json(text, list[dict[str, Any]])))
    code = read_python(text)
    if not any(isinstance(node, ast.FunctionDef) and node.name == INPUTS for node in ast.parse(code).body):
        raise Unreadable(f"the block defines no function `{INPUTS}(random)` at its top level")
    return code


async def ask_for_inputs(
    context: StageContext,
    problem: CodingProblem,
    prompt: str,
    values: Mapping[str, Any],
    found: AnsweredInputs,
    *,
    label: str,
    seed: int,
    first: int,
    most: int,
    settings: InputSettings,
) -> None:
    """Ask for `most` inputs, again if the code makes none, and answer them. Results are added to `found`, from position `first` on."""
    fault = code = ""
    for attempt in range(settings.repairs + 1):
        name = label + (f"-repair{attempt}" if attempt else "")
        shown = {**values, "fault": fault, "code": code}
        source = await context.ask(prompt, shown, read_inputs_code, label=name)
        async with context.execution() as folder, FunctionRunner(folder / "functions", settings.limits) as runner:
            rows, fault = await generate_inputs(runner, source, f"{seed}/{problem.id}/{name}")
            if not fault:
                longest = settings.longest_answer
                return await answer_inputs(runner, problem, rows[:most], found, first=first, longest=longest)
        code = f"```python\n{source}```"
    found.first_fault = found.first_fault or fault


async def generate_inputs(runner: FunctionRunner, code: str, seed: str) -> tuple[list[Any], str]:
    """Run `inputs` twice with the same seed. Returns (its list, fault), where the fault is a text for the model that wrote the code."""
    first, second = [await runner.run(code, INPUTS, {}, seed=seed) for _ in range(2)]
    if first.ended is not Ending.RETURNED:
        return [], str(first)
    if second.ended is not Ending.RETURNED or dump_json(first.value) != dump_json(second.value):
        return [], "two runs made different inputs: use only the generator `random` that the function gets"
    if not isinstance(first.value, list) or not first.value:
        return [], f"{INPUTS} returned {dump_json(first.value)[:80]}, not a list of inputs"
    return first.value, ""


async def answer_inputs(
    runner: FunctionRunner,
    problem: CodingProblem,
    rows: Sequence[Any],
    found: AnsweredInputs,
    *,
    first: int,
    longest: int,
) -> None:
    """Check inputs and answer them with the problem's solution; results go to `found` from position `first` on."""
    schema = compile_schema(problem.inputs)
    for position, row in enumerate(rows, first):
        text = dump_json(row)
        if text in found.seen:
            continue
        found.seen.add(text)
        if not isinstance(row, dict) or not schema.valid(row):
            where = schema.errors(row)[:1]
            found.add_fault(
                "schema", f"{text[:120]} breaks the schema{f' at {where[0][0]}: {where[0][1]}' if where else ''}"
            )
            continue
        run = await runner.run(problem.solution, SOLVE, row)
        if run.ended is not Ending.RETURNED:
            found.add_fault(str(run.ended), f"the solution fails for {text[:120]}: {run.detail}")
        elif run.value is None:
            found.add_fault("no_answer", f"the solution returns null for {text[:120]}")
        elif len(dump_json(run.value)) > longest:
            found.add_fault("long_answer", f"an answer has more than {longest} characters")
        elif not answers_match((await runner.run(problem.solution, SOLVE, row)).value, run.value):
            found.add_fault("not_repeatable", f"the solution gives two answers for {text[:120]}")
        else:
            found.valid[position] = (row, run.value)
