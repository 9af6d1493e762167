"""Compare answers of coding problems, and write the check with this comparison for the task of a gym."""

from __future__ import annotations

import inspect
import math
from typing import Any

from simia.formats.dialect import dump_json

CHECK = """\
import json
import math


{compare}

EXPECTED = json.loads({expected!r})


def check(final, initial):
    return answers_match(final["answer"], EXPECTED)
"""


# Its source, docstring included, is part of every gym's tasks: a change of a word changes packs that were made before.
def answers_match(found: object, expected: object) -> bool:
    """Whether two JSON values are the same answer: floats within a relative 1e-6, an integer equals a float of its value, a boolean
    is no number."""
    if isinstance(found, bool) or isinstance(expected, bool):
        return found is expected
    if isinstance(found, int | float) and isinstance(expected, int | float):
        return found == expected or math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(answers_match, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(answers_match(found[key], expected[key]) for key in found)
    return type(found) is type(expected) and found == expected


def write_answer_check(expected: Any) -> str:
    """Write the source of a task's check: the final state's `answer` must be the expected one. The source does not need simia."""
    return CHECK.format(compare=inspect.getsource(answers_match), expected=dump_json(expected))
