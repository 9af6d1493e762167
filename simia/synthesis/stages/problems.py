"""Stage `problems`: coding problems of any source in one unified form, verified by execution (CodeGym §3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.synthesis.design import SolvedExample
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionLimits, FunctionRunner
from simia.synthesis.gyms.original_comparison import compare_with_original, find_failed_assert, has_own_asserts
from simia.synthesis.gyms.problem_code import SOLVE, UnifiedSolution, adopt_unified, make_problem, read_unified
from simia.synthesis.gyms.problem_files import SourceProblem
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PROMPT = "synthesis/problem.j2"
SHOWN_TESTS = 3_000


class ProblemStage:
    """Unify each problem: a `solve` function with named inputs, their JSON Schema, and examples with executed answers."""

    name = "problems"

    def __init__(self, problems: Sequence[SourceProblem], limits: FunctionLimits, *, repairs: int = 3) -> None:
        self._problems, self._limits, self._repairs = list(problems), limits, repairs

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(problem.id, dump(problem)) for problem in self._problems]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        source = SourceProblem.model_validate(given.value)
        if source.reason:
            raise Refused(Reason(source.reason), source.detail)
        await self._check_asserts(source, context)
        unified, code, reason, fault = adopt_unified(source), "", Reason.UNIFIED_FAILS, ""
        context.note(asked=unified is None)
        for number in range(self._repairs + 1):
            if unified is None:
                values = {
                    "statement": source.statement,
                    "solution": source.solution,
                    "tests": source.tests[:SHOWN_TESTS],
                    "code": code,
                    "fault": fault,
                }
                unified = await context.ask(
                    PROMPT, values, read_unified, label=f"repair{number}" if number else "draft"
                )
            async with context.execution() as folder:
                examples, reason, fault = await self._verify(source, unified, folder, context)
            if not fault:
                context.note(repairs=number)
                return dump(make_problem(source, unified, examples))
            code, unified = unified.code, None
        raise Refused(reason, fault)

    async def _check_asserts(self, source: SourceProblem, context: StageContext) -> None:
        """Refuse a problem whose solution fails its own asserts, before anything is asked."""
        if not has_own_asserts(source.solution):
            return
        async with context.execution() as folder, FunctionRunner(folder, self._limits) as runner:
            failed = await find_failed_assert(source.solution, runner)
        if failed:
            raise Refused(Reason.BAD_PROBLEM, f"{source.source}: an assert of the solution itself fails: {failed}")

    async def _verify(
        self, source: SourceProblem, unified: UnifiedSolution, folder: Path, context: StageContext
    ) -> tuple[list[SolvedExample], Reason, str]:
        """Execute the examples twice, and compare with the original. Returns the solved examples, or a reason with what is wrong."""
        examples: list[SolvedExample] = []
        async with FunctionRunner(folder, self._limits) as runner:
            for inputs in unified.examples:
                first, second = [await runner.run(unified.code, SOLVE, inputs) for _ in range(2)]
                shown = str(inputs)[:300]
                if first.ended is not Ending.RETURNED:
                    return [], Reason.UNIFIED_FAILS, f"solve fails for {shown}: {first}"
                if first.value is None:
                    return [], Reason.UNIFIED_FAILS, f"solve returns null for {shown}; an answer must be a value"
                if second.ended is not first.ended or not answers_match(first.value, second.value):
                    return [], Reason.UNIFIED_FAILS, f"solve returns two different answers for {shown}"
                examples.append(SolvedExample(inputs=inputs, answer=first.value))
            if source.solution.strip() == unified.code.strip() and not source.tests:
                return examples, Reason.UNIFIED_FAILS, ""
            found = await compare_with_original(source, unified, runner)
        context.note(compared=found.compared, **({"not_compared": found.missing} if found.missing else {}))
        return examples, Reason.SOLUTION_DIFFERS, found.difference
