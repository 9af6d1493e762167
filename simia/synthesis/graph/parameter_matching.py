"""Decide whether a field of a result can be an argument of another tool: by names, and by embeddings if there are vectors.

Two identifiers match if both are keys of the same table, or if one name ends with the other (`new_product_id`, `product_id`). Other values
match only if their full names are equal. They do not match if the name is a date or means something else in each tool (`status`, `note`), or
if the argument is a new value to write. An enumerated argument never matches, since the schema gives its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simia.llm.embeddings import compute_cosine
from simia.quality.grounding import EMAIL_NAME, NEVER_FORMATS, looks_like_identifier
from simia.quality.tool_effects import CHANGES, LOOK_UPS, split_tool_name
from simia.state_schema import StateSchema
from simia.synthesis.building.state_model import find_singular
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.tool_graph import GraphInput, GraphOutput
from simia.synthesis.graph.tool_results import BARE, DescribedTool

Vectors = Mapping[str, Sequence[float]]
"""Text of a parameter (`describe_parameter`) → its vector of length 1."""
GENERIC_WORDS = (
    "name title status state type kind role note text description summary message reason comment query keyword limit offset page size"
    " count number total amount quantity price value unit currency language sort order active enabled method priority level category"
    " email phone subject body content location organisation organization"
)
DATE_WORDS = "date day time at on month year since until from to start end"
GENERIC, DATES = frozenset(GENERIC_WORDS.split()), frozenset(DATE_WORDS.split())
MAKERS = frozenset((verb,) for verb in ("create", "add", "register", "make", "new", "insert", "write", "save"))
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
LOOSE = frozenset(("string", "integer", "number"))


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or a field of a result, in the form that is compared."""

    words: tuple[str, ...]
    """Its name as words in the singular; to a bare `id` the entity of the tool is added: `order`, `id`."""
    kind: str
    """Its JSON type."""
    table: str | None
    """The table whose key it is."""
    identifier: bool
    """Whether its value names a row or a thing."""
    text: str
    """Name, type and description, for embeddings."""


class ParameterMatcher:
    """Compares the fields of results with the arguments of one environment's tools."""

    def __init__(self, schema: StateSchema, settings: GraphSettings, vectors: Vectors | None = None) -> None:
        self._keys = list_key_names(schema)
        self._settings, self._vectors = settings, vectors

    @property
    def embeds(self) -> bool:
        """Whether parameters of different names can match."""
        return self._vectors is not None

    def read_input(self, tool: DescribedTool, argument: GraphInput) -> Parameter | None:
        """Return an argument in the form that is compared; None if no result can be this argument."""
        schema = tool.spec.parameters["properties"][argument.name]
        if "enum" in schema or "const" in schema or argument.type == "boolean":
            return None
        element = schema.get("items") if argument.type == "array" else None
        if isinstance(element, dict) and "enum" in element:
            return None
        rules: dict[str, Any] = element if isinstance(element, dict) else schema
        if rules.get("format") in NEVER_FORMATS:
            return None
        return self._read(argument, argument.name, tool.spec.name, rules)

    def read_output(self, tool: DescribedTool, field: GraphOutput) -> Parameter:
        """Return a field of a result in the form that is compared."""
        return self._read(field, field.name, tool.spec.name, {})

    def _read(self, of: GraphInput | GraphOutput, name: str, tool: str, rules: Mapping[str, Any]) -> Parameter:
        words = split_name(name)
        if len(words) == 1 and words[0] in BARE:
            words = (*name_entity(tool), *words)
        table = self._find_table(words) if of.type not in ("object", "boolean") else None
        looks = looks_like_identifier("_".join(words), dict(rules)) and not EMAIL_NAME.search(name)
        return Parameter(words, of.type, table, table is not None or looks, describe_parameter(of))

    def _find_table(self, words: tuple[str, ...]) -> str | None:
        """Return the table whose key a name means, by the longest known ending of the name."""
        for start in range(len(words)):
            if start and len(words) - start < 2:
                return None
            if words[start:] in self._keys:
                return self._keys[words[start:]]
        return None

    def find_match(self, given: Parameter, wanted: Parameter, target: DescribedTool) -> str | None:
        """Return which comparison matches a value with the argument, `words` or `embeddings`; None if neither does."""
        if not are_compatible(given, wanted):
            return None
        if self._compare_words(given, wanted, target) >= self._settings.words_threshold:
            return "words"
        if self._vectors is not None and given.text in self._vectors and wanted.text in self._vectors:
            cosine = compute_cosine(self._vectors[given.text], self._vectors[wanted.text])
            if cosine >= self._settings.embeddings_threshold:
                return "embeddings"
        return None

    def _compare_words(self, given: Parameter, wanted: Parameter, target: DescribedTool) -> float:
        """The likeness of two names, from 0 to 1."""
        if given.table is not None and given.table == wanted.table:
            return 1.0
        if given.table is not None and wanted.table is not None:
            return 0.0
        if given.identifier and wanted.identifier:
            return compare_ends(given.words, wanted.words)
        if given.identifier or wanted.identifier or takes_new_values(target, wanted):
            return 0.0
        means_little = set(wanted.words) <= GENERIC | DATES or wanted.words[-1] in DATES
        return 0.0 if means_little or given.words != wanted.words else 1.0


def takes_new_values(tool: DescribedTool, wanted: Parameter) -> bool:
    """Whether an argument that is no identifier is a new value to write, not one that exists: in tools that make something every such
    argument, in other writing tools those that are no texts."""
    return tool.node.writes and (wanted.kind != "string" or split_tool_name(tool.spec.name)[:1] in MAKERS)


def are_compatible(given: Parameter, wanted: Parameter) -> bool:
    """Whether the types fit (a list fits its elements). A key of one table never fits a key of another table."""
    if given.table is not None and wanted.table is not None and given.table != wanted.table:
        return False
    if given.kind == "boolean" or wanted.kind == "boolean":
        return False
    kinds = {given.kind, wanted.kind}
    if kinds & {"any", "array"} or len(kinds) == 1:
        return True
    return kinds <= LOOSE if given.identifier and wanted.identifier else kinds == {"integer", "number"}


def compare_ends(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """If the longer name ends with the shorter one, return the ratio of their numbers of words; otherwise 0."""
    short, long = sorted((one, other), key=len)
    if len(short) < 2 and one != other:
        return 0.0
    return len(short) / len(long) if short and long[-len(short) :] == short else 0.0


def split_name(name: str) -> tuple[str, ...]:
    """The words of a name in the singular: `itemIds`, `item_id` and `items.id` are alike."""
    words = tuple(find_singular(word.lower()) for word in WORD.findall(name))
    return words or (name.lower(),)


def name_entity(tool: str) -> tuple[str, ...]:
    """Return the entity in a tool's name, which is the name without the verb: `get_user` → `user`."""
    words = split_name(tool.rpartition(".")[2])
    return words[1:] if words[0] in LOOK_UPS | CHANGES else words


def list_key_names(schema: StateSchema) -> dict[tuple[str, ...], str]:
    """Words of a name → the table whose keys have it: `order_id`, the key's column, and foreign keys that name one table only."""
    found: dict[tuple[str, ...], str] = {}
    doubtful: set[tuple[str, ...]] = set()
    for table in schema.tables.values():
        for column, spec in table.columns.items():
            if spec.references is not None:
                words = split_name(column)
                if found.setdefault(words, spec.references) != spec.references:
                    doubtful.add(words)
    for words in doubtful:
        del found[words]
    for name, table in schema.tables.items():
        found[(*split_name(name), "id")] = name
        key = split_name(table.key) if table.key else ()
        if len(key) > 1 or (key and key[0] not in BARE):
            found[key] = name
    return found


def describe_parameter(of: GraphInput | GraphOutput) -> str:
    """The text of a parameter that is embedded: `name (type): description`."""
    return f"{of.name} ({of.type}): {of.description}".rstrip(": ")
