"""One way in: YAML files, `extends`, `--set a.b=c`, unknown keys refused with a suggestion.

Each field of a run's config is either *identity* (what it changes changes the data: model, prompt, seeds, checks; a
resume refuses a different value and names it) or *operational* (concurrency, budget, patience: free to change), which
the field says with `json_schema_extra=OPERATIONAL`. Keys never stand in a config, only the names of their variables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from simia import resources
from simia.errors import UserError

C = TypeVar("C", bound="Config")
OPERATIONAL: dict[str, JsonValue] = {"operational": True}


class Config(BaseModel):
    """Base of every config section: unknown keys are mistakes, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def load(cls: type[C], name: str | Path | None, settings: Sequence[str] = (), **overrides: Any) -> C:
    """Read `configs/<name>` (or a path), follow `extends`, apply `a.b=value` settings, check."""
    data: dict[str, Any] = read(name) if name is not None else {}
    for setting in settings:
        path, _, text = setting.partition("=")
        if not _ or not path:
            raise UserError(f"--set {setting!r}: write it as a.b=value")
        assign(data, path.split("."), scalar(text))
    for key, value in overrides.items():
        if value is not None:
            assign(data, key.split("__"), value)
    return parse(cls, data, where=str(name) if name else "settings")


def scalar(text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    # YAML 1.1 reads 5e-6 as text; everybody who writes it means a number.
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def parse(cls: type[C], data: dict[str, Any], *, where: str) -> C:
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(cls, error)}") from None


def read(name: str | Path) -> dict[str, Any]:
    """A config file with what it extends beneath it. A relative `extends` is looked up beside the file first."""
    path = find_config(name)
    return _read(path, ())


def find_config(name: str | Path) -> Path:
    text = str(name)
    return resources.find("configs", text if text.endswith((".yaml", ".yml")) else f"{text}.yaml")


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise UserError(f"{path} extends itself through {' → '.join(p.name for p in seen)}")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: a config is a mapping of names to values")
    parent = data.pop("extends", None)
    if parent is None:
        return data
    beside = path.parent / str(parent)
    base = _read(beside if beside.is_file() else find_config(str(parent)), (*seen, path))
    return merge(base, data)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Deep merge; a section whose `kind` changes is replaced, for its other fields belong to the old kind."""
    if "kind" in over and over["kind"] != base.get("kind"):
        return over
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def assign(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a nested value. Naming an endpoint turns a section of another kind into that endpoint."""
    for key in path[:-1]:
        inner = data.get(key)
        if not isinstance(inner, dict):
            inner = data[key] = {}
        data = inner
    if path[-1] == "kind" and data.get("kind") not in (None, value):
        data.clear()
    data[path[-1]] = value


def explain(cls: type[BaseModel], error: ValidationError) -> str:
    """One line for one problem, with the nearest known key where a key is unknown."""
    found = error.errors()
    # A misspelt name leaves the one that was meant missing: it is the misspelling that is to be named.
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    place = ".".join(untagged(cls, first["loc"]))
    if first["type"] == "union_tag_not_found":
        kinds = [
            kind
            for model in models_at(cls, [p for p in first["loc"] if isinstance(p, str)])
            for kind in kinds_of(model)
        ]
        return f"{place} needs a kind, as {place}.kind={kinds[0]}; there are: {', '.join(kinds)}"
    if first["type"] != "extra_forbidden":
        got = first.get("input")  # a whole section is not repeated: it may hold what should not be printed
        return f"{place}: {first['msg']}" + (f" (got {got!r})" if isinstance(got, bool | int | float) else "")
    known = fields_at(cls, [p for p in first["loc"][:-1] if isinstance(p, str)])
    close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.7)
    hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(known))}"
    return f"unknown key {place!r}: {hint}"


def fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    """Field names of the section that `path` leads to."""
    return list(dict.fromkeys(name for model in models_at(cls, path) for name in model.model_fields))


def untagged(cls: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """A place as a user writes it: pydantic puts the kind of a union's member into it, which no config has there."""
    kept: list[str] = []
    for n, step in enumerate(path):
        before = models_at(cls, [p for p in path[:n] if isinstance(p, str)])
        named = any(step in model.model_fields for model in before)
        if isinstance(step, int) or named or not any(step in kinds_of(model) for model in before):
            kept.append(str(step))
    return kept


def kinds_of(model: type[BaseModel]) -> list[str]:
    """What the `kind` of a union's member may be."""
    return (
        [str(kind) for kind in get_args(model.model_fields["kind"].annotation)] if "kind" in model.model_fields else []
    )


def models_at(cls: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """The sections that `path` may lead to; union members are found by their kind."""
    candidates: list[type[BaseModel]] = [cls]
    for step in path:
        found: list[type[BaseModel]] = []
        for model in candidates:
            if step in model.model_fields:
                found += models_in(model.model_fields[step].annotation)
            elif step in kinds_of(model):
                found.append(model)
        candidates = found
    return candidates


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for arg in getattr(annotation, "__args__", ()) for m in models_in(arg)]


def identity(config: BaseModel) -> dict[str, Any]:
    """The part of a config that a resume may not change."""
    plain = config.model_dump(mode="json")
    kept: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("operational"):
            continue
        value = getattr(config, name)
        kept[name] = identity(value) if isinstance(value, BaseModel) else plain[name]
    return kept


def differences(old: Any, new: Any, at: str = "") -> list[str]:
    """Dotted names of the fields that differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted(old.keys() | new.keys())
            for line in differences(old.get(key), new.get(key), f"{at}.{key}".lstrip("."))
        ]
    return [] if old == new else [f"{at}: {old!r} → {new!r}"]
