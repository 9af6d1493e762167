"""Check arguments with LLaMA-Factory's own classes, in seconds, without a model, a data set or a GPU.

Runs inside the trainer's environment, not simia's: `python -I simia/trainers/llamafactory_check.py train.yaml a=b …`, in the folder
of the training. It reads file and arguments as LLaMA-Factory's own command does. The problem is the last line on stderr.
LLaMA-Factory compares no types: text in place of a number fails in the first computation with it, after the model is loaded.
"""

from __future__ import annotations

import difflib
import os
import sys
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

ELSEWHERE = {"bf16": False, "fp16": False, "pure_bf16": False, "tf32": None, "fp8": False, "deepspeed": None}
"""Values in place of settings that need the training's GPUs, since a dry run may be on another machine. DeepSpeed's file is checked before."""
ALONE = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # a launcher's variables, which do not apply to this process
NUMBERS = {int, float}


def main() -> str | None:
    """Return the problem in one line; None if LLaMA-Factory accepts the arguments."""
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "LLAMAFACTORY_VERBOSITY": "ERROR"})
    for name in ALONE:
        os.environ.pop(name, None)
    try:
        from llamafactory.hparams import parser  # type: ignore[import-not-found,unused-ignore]
        from transformers import integrations  # type: ignore[import-not-found,unused-ignore]
    except Exception as error:
        return f"LLaMA-Factory does not start in {sys.prefix}: {format_error(error)}"
    try:
        given = parser.read_args()
    except Exception as error:
        return f"LLaMA-Factory cannot read its arguments: {format_error(error)}"
    if not isinstance(given, Mapping):
        return f"{sys.argv[1]} is no mapping of arguments"
    hints: dict[str, Any] = {}
    for kind in parser._TRAIN_ARGS:
        hints |= get_type_hints(kind)
    if not parser.is_env_enabled("ALLOW_EXTRA_ARGS"):
        for name in given:
            if name not in hints:
                return f"LLaMA-Factory has no argument {name}{suggest_nearest(str(name), hints)}"
    for name, value in given.items():
        if name in hints and (wanted := explain_wanted(value, hints[name])):
            return f"{name} is {value!r}: LLaMA-Factory takes {wanted}"
    if isinstance(start := given.get("resume_from_checkpoint"), str) and not Path(start).expanduser().is_dir():
        return f"resume_from_checkpoint: there is no folder {start}; leave it out to go on from the last checkpoint"
    reports = given.get("report_to")
    for reporter in reports if isinstance(reports, list) else [reports]:
        there = getattr(integrations, f"is_{reporter}_available", None)
        if there is not None and not there():
            return f"report_to: {reporter} is not installed in {sys.prefix}; install it there, or set report_to to none"
    try:
        parser.get_train_args({**given, **{name: value for name, value in ELSEWHERE.items() if name in given}})
    except Exception as error:
        return f"LLaMA-Factory refuses: {format_error(error)}"
    return None


def suggest_nearest(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def explain_wanted(value: Any, hint: Any) -> str | None:
    """Return the values that an argument takes (numbers, true or false, choices), if this value does not fit; else None.

    Text, lists and mappings are not compared, since LLaMA-Factory splits and parses them.
    """
    members = set(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else {hint}
    kinds = members - {type(None)}
    if value is None and (type(None) in members or not kinds <= NUMBERS):
        return None
    if choices := list_choices(kinds):
        more = f" and {len(choices) - 8} more" if len(choices) > 8 else ""
        shown = ", ".join(map(str, choices[:8])) + more
        return None if value in choices else f"one of {shown}{suggest_choice(value, choices)}"
    if kinds <= NUMBERS:
        right = isinstance(value, int if kinds == {int} else int | float) and not isinstance(value, bool)
        quoted = "; write it without quotes" if isinstance(value, str) and is_float_text(value) else ""
        return None if right else f"a {'whole ' if kinds == {int} else ''}number{quoted}"
    if kinds == {bool}:
        return None if isinstance(value, bool) or value in (0, 1) else "true or false"
    return None


def list_choices(kinds: set[Any]) -> list[Any]:
    """Return the values of an enumeration, also if the type allows plain text besides."""
    found: list[Any] = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            found += [one.value for one in kind]
        elif get_origin(kind) is Literal:
            found += get_args(kind)
        elif kind is not str:
            return []
    return found


def is_float_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def suggest_choice(value: Any, words: list[Any]) -> str:
    if isinstance(value, bool):  # YAML reads `no` and `off` as false
        text = next((word for word in (("on", "yes") if value else ("off", "no")) if word in words), None)
        return f"; YAML reads {text} as {value}: write it in quotes" if text else ""
    texts = [str(word) for word in words]
    near = [text for text in texts if text.startswith(str(value))] or difflib.get_close_matches(str(value), texts, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def format_error(error: Exception) -> str:
    """Format an exception as one line."""
    return " ".join(str(error).split())[:400] or type(error).__name__


if __name__ == "__main__":
    wrong = main()
    if wrong:
        shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(wrong))
        print(shown, file=sys.stderr, flush=True)
    os._exit(1 if wrong else 0)  # at once: exit handlers must not print after this line
