"""Read configs: YAML files, `extends`, `--set a.b=c`. Unknown keys are refused with a suggestion.

A field of a run's config is part of the run's *identity* unless it is marked *operational* (`json_schema_extra=OPERATIONAL`).
Identity fields (model, prompt, seeds, checks) determine the data: a resume refuses a different value and names the field. Operational
fields (concurrency, budget, patience) may change. A config never holds API keys, only the names of environment variables that hold them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from simia import search_path
from simia.config_errors import explain_validation_error, locate_error
from simia.config_secrets import ADVICE, find_secrets
from simia.errors import UserError

C = TypeVar("C", bound="Config")
OPERATIONAL: dict[str, JsonValue] = {"operational": True}
T = TypeVar("T")
Operational = Annotated[T, Field(json_schema_extra=OPERATIONAL)]
SAME_MODEL = {"openai", "batch"}  # kinds that reach one model in two ways
OF_MODEL = ("model", "structured", "token_parameter", "reasoning_model", "extra_body", "price")
DATE = "tag:yaml.org,2002:timestamp"
TEXT_ERRORS = ("string_type", "literal_error", "path_type")  # of pydantic: the field takes text
LARGEST_YAML = 1 << 20  # characters of a file
DEEPEST_YAML = 100  # sections within sections
SURROGATE = re.compile("[\ud800-\udfff]")
LONG_NUMBER = re.compile(
    r"[-+0-9a-fA-Fx_:.]{4301,}"
)  # no message can show it; YAML's base 60 (1:30:00) takes quadratic time
MOST_VALUES = 100_000  # of a file, each value of an alias counted where it is used


class Config(BaseModel):
    """Base of every config section: unknown keys are mistakes, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    retired: ClassVar[tuple[str, ...]] = ()
    """Dotted names of settings that no longer exist; a resume does not compare them."""


def load_config(cls: type[C], name: str | Path | None, settings: Sequence[str] = (), **overrides: Any) -> C:
    """Read `configs/<name>` (or a path), follow `extends`, apply `a.b=value` settings, check."""
    data: dict[str, Any] = read_config_file(name) if name is not None else {}
    given: list[tuple[str, Any]] = []
    for setting in settings:
        path, sign, text = setting.partition("=")
        if not sign or not path:
            raise UserError(f"--set {setting!r}: write it as a.b=value")
        if path.count(".") >= DEEPEST_YAML:
            raise UserError(f"--set: the name {path[:40]!r}… has more than {DEEPEST_YAML} parts; write it as a.b=value")
        given.append((path, read_command_line_value(text)))
    drop_backend_settings(data, dict(given))
    for path, value in given:
        assign_setting(data, path.split("."), value)
    apply_settings(data, {key.replace("__", "."): value for key, value in overrides.items() if value is not None})
    return parse_config(cls, data, where=str(name) if name else "settings", given=dict(given))


class ConfigLoader(yaml.SafeLoader):
    """YAML without dates: no field is one, and an `api_version` that looks like one is text."""


ConfigLoader.yaml_implicit_resolvers = {
    letter: [(tag, form) for tag, form in found if tag != DATE]
    for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(
    text: str, where: str | Path, loader: Any = ConfigLoader, *, largest: int = LARGEST_YAML, most: int = MOST_VALUES
) -> Any:
    """Read untrusted YAML, with limits on its size, its depth and the expansion of its aliases.

    `where`: the file, for messages. `loader`: a safe loader of PyYAML. `largest`: most characters. `most`: most values. Raises `UserError`
    in one line.
    """
    if len(text) > largest:
        raise UserError(f"{where} is larger than {largest:,} characters; shorten it")
    try:
        refuse_excess(yaml.parse(text, loader), where, most)
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise UserError(f"{where} is not YAML: {explain_yaml_error(error)}") from None
    # What PyYAML raises for an integer of 5,000 digits, `!!int ""`, `!!bool x` and `!!timestamp x`.
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        raise UserError(f"{where} holds a value that cannot be read as its type; write it in quotes") from None


def holds_long_number(event: yaml.Event) -> bool:
    """Check whether an event is a number of more than 4,300 digits: not in quotes, which make it a text."""
    if not isinstance(event, yaml.ScalarEvent) or event.implicit[1]:
        return False
    return LONG_NUMBER.fullmatch(event.value) is not None


def explain_yaml_error(error: yaml.YAMLError) -> str:
    """Return the line and column of a YAML error, and its reason."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return str(error).splitlines()[0]
    hint = "; indent with spaces, not tabs" if r"'\t'" in problem else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"


def refuse_excess(events: Iterable[yaml.Event], where: str | Path, most: int = MOST_VALUES) -> None:
    """Raise `UserError` for YAML that is too deep, expands to too many values, contains itself or holds text that UTF-8 cannot write."""
    open_nodes: list[tuple[str | None, int, int]] = []  # anchor; values and depth beneath it so far
    known: dict[str, tuple[int, int] | None] = {}  # of an anchor: values and depth; None while it is open
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size, depth = open_nodes.pop()
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1, 1))
            if event.anchor is not None:
                known[event.anchor] = None
            if len(open_nodes) > DEEPEST_YAML:
                raise UserError(f"{where} is nested more than {DEEPEST_YAML} levels deep; flatten it")
            continue
        elif isinstance(event, yaml.AliasEvent):
            named = known.get(event.anchor or "", (0, 0))  # an unknown one is refused by PyYAML
            if named is None:
                raise UserError(f"{where}: an alias makes a section contain itself; write the values out instead")
            anchor, (size, depth) = None, named
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size, depth = event.anchor, 1, 0
            if holds_long_number(event):
                raise UserError(f"{where} has a number of more than 4,300 digits; write it in quotes")
            if not event.value.isascii() and SURROGATE.search(event.value):
                raise UserError(
                    f"{where}: a text contains a lone surrogate (such as \\ud800); write the whole character"
                )
        else:
            continue
        if anchor is not None:
            known[anchor] = (size, depth)
        if open_nodes:
            outer, values, deepest = open_nodes[-1]
            open_nodes[-1] = (outer, values + size, max(deepest, depth + 1))
            if values + size > most:
                raise UserError(f"{where} has more than {most:,} values, those of aliases included; shorten it")
            if len(open_nodes) + depth > DEEPEST_YAML:
                raise UserError(f"{where} is nested more than {DEEPEST_YAML} levels deep; flatten it")


@dataclass(frozen=True)
class CommandLineValue:
    """A value of the command line and its original text: a field for text receives the text, any other field the value."""

    value: Any
    text: str


def parse_scalar(text: str, loader: type[yaml.SafeLoader] = ConfigLoader) -> Any:
    """Return the value of a text read as YAML."""
    try:
        value = load_yaml(text, "a setting", loader)
    except UserError:
        return text
    # YAML 1.1 reads 5e-6 as text.
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def read_command_line_value(text: str) -> Any:
    """Return the value of a setting of the command line. `null` unsets a field."""
    value = parse_scalar(text)
    return value if value is None or isinstance(value, str) else CommandLineValue(value, text)


def parse_config(cls: type[C], data: dict[str, Any], *, where: str, given: Collection[str] = ()) -> C:
    """Check a config. Raises `UserError` in one line. `given`: dotted names set by `--set`; their errors name `--set` as the source, not `where`."""
    texts: dict[tuple[str, ...], str] = {}
    values = strip_texts(data, texts)

    def name_source(place: str) -> str:
        return "--set" if any(f"{place}.".startswith(f"{name}.") for name in given) else f"{where}:"

    for place in find_secrets(values):
        raise UserError(f"{name_source(place)} {place} holds a secret: {ADVICE}")
    try:
        config = validate_config(cls, values, texts)
    except ValidationError as error:
        place, problem = explain_validation_error(cls, error, values)
        source = name_source(place)
        colon = ":" if source == "--set" and problem.startswith("unknown key") else ""
        raise UserError(f"{source}{colon} {problem}") from None
    for place in find_large_integers(config.model_dump()):
        raise UserError(
            f"{name_source(place)} {place} is an integer beyond 64 bits, which a run cannot store: use a smaller one"
        )
    return config


def find_large_integers(value: Any, at: str = "") -> Iterator[str]:
    """Yield the dotted names of integers that JSON of a run cannot hold: those that do not fit into 64 bits."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from find_large_integers(each, f"{at}.{key}" if at else str(key))
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        yield at


def validate_config(cls: type[C], values: dict[str, Any], texts: Mapping[tuple[str, ...], str]) -> C:
    """Validate a config. A value of the command line is replaced by its text if the field expects text."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        wants_text = [each for each in error.errors() if each["type"] in TEXT_ERRORS]
        refused = texts.keys() & {locate_error(values, each) for each in wants_text}
        if not refused:
            raise
    for place in refused:
        assign_setting(values, list(place), texts[place])
    return cls.model_validate(values)


def strip_texts(data: Any, texts: dict[tuple[str, ...], str], at: tuple[str, ...] = ()) -> Any:
    """Return `data` with plain values, and store the text of each value of the command line in `texts` under its place."""
    if isinstance(data, CommandLineValue):
        texts[at] = data.text
        return data.value
    if isinstance(data, dict):
        return {key: strip_texts(value, texts, (*at, str(key))) for key, value in data.items()}
    return data


def read_config_file(name: str | Path) -> dict[str, Any]:
    """Read a config file, merged into the config that it extends."""
    return read_extending_file(find_config(name), ())


def read_extending_file(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise UserError(f"{path} extends itself through {' → '.join(p.name for p in seen)}")
    data = load_yaml(read_bounded(path), path) or {}
    if not isinstance(data, dict):
        raise UserError(f"{path}: a config is a mapping of names to values")
    parent = data.pop("extends", None)
    if parent is None:
        return data
    return merge_sections(read_extending_file(find_parent(path, str(parent)), (*seen, path)), data)


def find_config(name: str | Path) -> Path:
    return search_path.find_resource("configs", add_yaml_suffix(str(name)))


def add_yaml_suffix(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"


def read_bounded(path: Path) -> str:
    """Return the text of a YAML file, with a limit on its size: a link may lead to an endless device. Raises `UserError`."""
    try:
        with path.open("rb") as file:
            data = file.read(4 * LARGEST_YAML + 1)
        return data.decode()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a readable file") from None
    except UnicodeDecodeError as error:
        if len(data) > 4 * LARGEST_YAML:
            raise UserError(f"{path} is larger than {LARGEST_YAML:,} characters; shorten it") from None
        raise UserError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None


def find_parent(path: Path, parent: str) -> Path:
    """Find what a config extends: a config of that name, else a file in its folder. `./NAME` is always a file in its folder."""
    neighbour = path.parent / Path(parent).expanduser()
    if search_path.find_named_resource("configs", add_yaml_suffix(parent)) is None and neighbour.is_file():
        return neighbour
    return find_config(parent)


def merge_sections(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge deeply. A section whose `kind` changes is replaced, since its fields belong to the old kind; `keep_model` says what stays."""
    if "kind" in over and over["kind"] != base.get("kind"):
        return {**keep_model(base, over["kind"]), **over}
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge_sections(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def keep_model(section: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return the fields that a section keeps when its kind changes: the model and its settings, between `openai` and `batch`; else none."""
    if {section.get("kind"), kind} != SAME_MODEL:
        return {}
    return {name: section[name] for name in OF_MODEL if name in section}


def assign_setting(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a nested value. A new `kind` removes the other fields of its section, except those that `keep_model` returns."""
    for key in path[:-1]:
        inner = data.get(key)
        if isinstance(inner, CommandLineValue):
            inner = data[key] = inner.value
        if not isinstance(inner, dict):
            inner = data[key] = {}
        data = inner
    if path[-1] == "kind" and data.get("kind") not in (None, value):
        kept = keep_model(data, value)
        data.clear()
        data.update(kept)
    data[path[-1]] = value


def drop_backend_settings(data: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Remove `backend_settings` from `data` where `changes` (dotted name → value) select another back end, which has other settings."""
    for name, value in changes.items():
        *path, last = name.split(".")
        section: Any = data
        for key in path:
            section = section.get(key) if isinstance(section, dict) else None
        if last == "backend" and isinstance(section, dict) and section.get("backend") not in (None, value):
            section.pop("backend_settings", None)


def apply_settings(data: dict[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Set values by their dotted names in `data`, and return it."""
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"settings: expected a mapping such as {{'limits.max_cost': 2}}, got {settings!r:.60}")
    for name, value in (settings or {}).items():
        assign_setting(data, name.split("."), value)
    return data


def select_identity(config: BaseModel) -> dict[str, Any]:
    """Return the part of a config that a resume may not change."""
    plain = config.model_dump(mode="json")
    kept: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("operational"):
            continue
        value = getattr(config, name)
        if isinstance(value, list) and value and all(isinstance(each, BaseModel) for each in value):
            kept[name] = [select_identity(each) for each in value]
        else:
            kept[name] = select_identity(value) if isinstance(value, BaseModel) else plain[name]
    return kept


def list_differences(old: Any, new: Any, defaults: Any = None, at: str = "") -> list[str]:
    """List the dotted names of the fields that differ, with both values. A field that `old` lacks, because an earlier version wrote it,
    counts as its default."""
    if isinstance(old, dict) and isinstance(new, dict):
        usual = defaults if isinstance(defaults, dict) else {}
        return [
            line
            for key in sorted(old.keys() | new.keys())
            for line in list_differences(
                old.get(key, usual.get(key)), new.get(key), usual.get(key), f"{at}.{key}".lstrip(".")
            )
        ]
    if is_sections(old) and is_sections(new) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for number, pair in pairs for line in list_differences(*pair, at=f"{at}.{number}")]
    return [] if old == new else [f"{at}: {name_sections(old)!r} → {name_sections(new)!r}"]


def name_sections(value: Any) -> Any:
    """Return the packs' names for a list of sections that name packs; any other value unchanged."""
    if value and is_sections(value) and all("pack" in each for each in value):
        return [each["pack"] for each in value]
    return value


def is_sections(value: Any) -> bool:
    """Check whether a value is a list of sections, such as the packs of an environment."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)
