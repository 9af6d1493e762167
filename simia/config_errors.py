"""Explain in one line what is wrong with a config: the key, what was expected, what it has, the nearest known key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

# Type of pydantic's error → what the key should hold, with the values of the error's context.
EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping of names to values"),
    "finite_number": "a finite number",
    "string_type": "text",
    "path_type": "a path",
    "list_type": "a list",
    "none_required": "null",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "at least {min_length} values",
    "too_long": "at most {max_length} values",
}
SHORT = 3  # characters of a key in which one typing error is a large part
LONGEST_VALUE = 60  # characters of a value in a message


def explain_validation_error(cls: type[BaseModel], error: ValidationError, values: Any = None) -> tuple[str, str]:
    """Return (key, problem) of the first problem. `values`: the validated data; without it, the key may contain the name of a union member."""
    found = error.errors()
    # A misspelt key also makes the intended key missing: report the misspelling.
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    place = ".".join(locate_error(values, first))
    kind, value, context = first["type"], first["input"], first.get("ctx", {})
    if kind == "extra_forbidden":
        known = {
            field.alias or name
            for model in find_models_at(cls, first["loc"][:-1])
            for name, field in model.model_fields.items()
        }
        name = str(first["loc"][-1])
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.7 if len(name) > SHORT else 0.6)
        section = place.rpartition(".")[0]
        hint = (
            f"did you mean {'.'.join([section, *close]).lstrip('.')!r}?"
            if close
            else f"known here: {', '.join(sorted(known))}"
        )
        return place, f"unknown key {place!r}: {hint}"
    if kind == "union_tag_not_found":
        kinds = [each for model in find_models_at(cls, first["loc"]) for each in list_kind_values(model)]
        return place, f"{place} needs a kind, as {place}.kind={kinds[0]}; there are: {', '.join(kinds)}"
    if kind == "union_tag_invalid":
        place = f"{place}.kind".lstrip(".")
        expected = str(context["expected_tags"])
        close = difflib.get_close_matches(str(context["tag"]), [each.strip("' ") for each in expected.split(",")], n=1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        return place, f"{place}: expected {expected}, got {describe_value(context['tag'])}{hint}"
    if kind == "missing":
        problem = "a value is required; set it"
    elif kind in EXPECTED:
        quotes = "; write it in quotes" if kind == "string_type" and isinstance(value, bool | int | float) else ""
        problem = f"expected {EXPECTED[kind].format(**context)}, got {describe_value(value)}{quotes}"
    else:
        problem = str(context.get("error", first["msg"]))
    return place, f"{place}: {problem}" if place else problem


def describe_value(value: Any) -> str:
    """Describe a value in a message. The content of a section is left out, since it may hold secrets."""
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else f"a list of {len(value)}"
    return repr(value) if len(repr(value)) <= LONGEST_VALUE else f"{repr(value)[:LONGEST_VALUE]}…"


def locate_error(values: Any, error: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the place of an error as a user writes it, without the names of union members that pydantic adds."""
    *steps, last = error["loc"] or ("",)
    place, at = [], values
    for step in (*steps, last):
        is_held = step in at if isinstance(at, dict) else isinstance(at, list) and isinstance(step, int)
        if is_held:
            at = at[step]
        if is_held or values is None or (step is last and error["type"] == "missing"):
            place.append(str(step))
    return tuple(place)


def find_models_at(cls: type[BaseModel], path: Sequence[int | str]) -> list[type[BaseModel]]:
    """Find the sections that an error location of pydantic may lead to; its step for a union member is the member's kind."""
    models, in_mapping = [cls], False
    for step in path:
        if in_mapping:  # the step is a key of the mapping, and no field
            in_mapping = False
            continue
        named = [field for model in models for name, field in model.model_fields.items() if step in (name, field.alias)]
        inner = [each for field in named for each in find_models_in(field.annotation)]
        in_mapping = bool(inner) and any(is_mapping(field.annotation) for field in named)
        models = inner or [model for model in models if step in list_kind_values(model)] or models
    return models


def is_mapping(annotation: Any) -> bool:
    """Whether a type is a mapping, or such a mapping or null."""
    return get_origin(annotation) is dict or any(get_origin(each) is dict for each in get_args(annotation))


def list_kind_values(model: type[BaseModel]) -> list[str]:
    """List the allowed values of `kind` of a union member."""
    field = model.model_fields.get("kind")
    return [str(kind) for kind in get_args(field.annotation)] if field else []


def find_models_in(annotation: Any) -> list[type[BaseModel]]:
    """Find the models in a type, those in unions and containers included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in find_models_in(inner)]
