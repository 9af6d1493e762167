"""Exceptions of a stage's code: find their cause, tell faults of the item from those of the machine, describe them reproducibly."""

from __future__ import annotations

import errno
import re
import tempfile
import traceback
from pathlib import Path

from simia.errors import Aborted, Code
from simia.llm.engine import BudgetReached
from simia.llm.types import LLMFault
from simia.synthesis.reasons import Refused

LONGEST = 300  # characters of an error's text
PASSING = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EDQUOT}
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
SANDBOX_LOST = {Code.WORKER_LOST}


def find_cause(error: Exception) -> Exception:
    """Return the decisive exception of a group: first model faults and an exhausted budget, then a refusal, then any other."""
    if not isinstance(error, ExceptionGroup):
        return error
    found = [find_cause(each) for each in error.exceptions]
    for kind in (LLMFault, BudgetReached, Refused):
        if chosen := next((each for each in found if isinstance(each, kind)), None):
            return chosen
    return found[0]


def is_infrastructure(error: Exception) -> bool:
    """Check for a failure of the machine: the item may have an output if it is made again."""
    if isinstance(error, Aborted):
        return error.code in SANDBOX_LOST and not error.facts.get("own")
    return isinstance(error, OSError) and error.errno in PASSING


def describe_failure(error: BaseException) -> str:
    """Describe an exception in one line: its type, its text, and the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return mask_places(" ".join(f"{type(error).__name__}: {error}".split()))[:LONGEST] + at


def mask_places(text: str) -> str:
    """Replace temporary folders and addresses, which differ from run to run."""
    folder = re.escape(tempfile.gettempdir())
    return ADDRESS.sub("0x…", re.sub(rf"{folder}/[\w.-]+", "TEMPORARY", text))
