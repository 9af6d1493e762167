"""List the settings of a config class, or of a config that was read: dotted name, type, value and description of each."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import orjson
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from simia.config_errors import find_models_in, list_kind_values

ANY_NAME = "NAME"  # stands for a key of a section that maps names to sections


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, or a section of settings, which has no value."""

    name: str
    type: str
    value: str | None
    description: str


def list_settings(
    model: type[BaseModel],
    config: BaseModel | None = None,
    prefix: str = "",
    listed: dict[tuple[type[BaseModel], ...], str] | None = None,
) -> Iterator[Setting]:
    """List every setting in the order of the fields, with its value in `config`, or with its default if `config` is None.

    Without `config`, a section that may be of several kinds is listed once for each kind; a later section with the same kinds is
    listed by name only. `listed`: kinds → the name of the section under which they are already listed.
    """
    listed = {} if listed is None else listed
    for name, field in model.model_fields.items():
        dotted = f"{prefix}{name}"
        value = getattr(config, name) if config is not None else None
        sections = tuple(find_models_in(field.annotation))
        description = " ".join((field.description or "").split())
        held = value if isinstance(value, dict) else {"": value}
        inner = {f"{dotted}.{key}".rstrip("."): each for key, each in held.items() if isinstance(each, BaseModel)}
        for place, each in inner.items():
            yield Setting(place, describe_type(type(each)), None, description)
            yield from list_settings(type(each), each, f"{place}.", listed)
        if inner:
            continue
        if config is not None or not sections or get_origin(field.annotation) is list:
            shown = write_value(value) if config is not None else write_default(field)
            yield Setting(dotted, describe_type(field.annotation), shown, description)
        elif len(sections) > 1 and sections in listed:
            optional = " or null" if type(None) in get_args(field.annotation) else ""
            yield Setting(dotted, f"the kinds of {listed[sections]}{optional}", write_default(field), description)
        else:
            if len(sections) > 1:
                listed[sections] = dotted
            below = f"{dotted}.{ANY_NAME}" if get_origin(field.annotation) is dict else dotted
            for section in sections:
                kinds = f", kind: {list_kind_values(section)[0]}" if len(sections) > 1 else ""
                yield Setting(below, describe_type(section) + kinds, None, description)
                yield from list_settings(section, None, f"{below}.", listed)


def write_default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    return write_value(field.get_default(call_default_factory=True))


def write_value(value: Any) -> str:
    """The value as one line of JSON, which is YAML too."""
    if isinstance(value, BaseModel):
        kind = getattr(value, "kind", None)
        value = {"kind": kind} if kind else value.model_dump(mode="json", exclude_defaults=True)
    dump = lambda each: each.model_dump(mode="json", exclude_defaults=True)  # noqa: E731
    return orjson.dumps(value, default=dump, option=orjson.OPT_NON_STR_KEYS).decode()


def describe_type(annotation: Any) -> str:
    """A type as a user reads it: `int or null`, `"auto" or "rules"`, `list of str`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin is Literal:
        return " or ".join(orjson.dumps(each).decode() for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(each) for each in arguments))
    if origin is list:
        return f"list of {describe_type(arguments[0])}"
    if origin is dict:
        return f"mapping of {describe_type(arguments[0])} to {describe_type(arguments[1])}"
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return "any" if annotation is Any else getattr(annotation, "__name__", str(annotation))
