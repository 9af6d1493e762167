"""Check grounding: the user, the system text or an earlier result must contain each identifier in a call.

An agent trained on calls with invented identifiers learns to invent them. The pack declares which arguments are identifiers
(`ToolSpec.identifiers`); otherwise they are inferred from the schema and from how the seeds use them. An identifier that the
agent may invent (the name of a thing to be created) is exempt only if the pack's declaration leaves it out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.errors import Code, Issue
from simia.quality.mentions import Mentions
from simia.quality.toolset import Toolset
from simia.quality.trajectory_view import TrajectoryView
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

Path = tuple[str, ...]

NAME = re.compile(r"(?:^|[_-])(?:ids?|uuids?|guid|iban|isbn|sku|vin)$|[a-z](?:Ids?|IDs?|Uuid|UUID)$|[a-z]_?[Nn]umber$")
NOT_A_NAME = re.compile(
    r"(?:page|line|row|column|chapter|verse|random|max|min|version|room|season|episode)_?number$", re.I
)
# Names in other scripts: 订单号, 用户ID, メールアドレス, 주문번호, หมายเลขคำสั่งซื้อ, رقم الطلب.
OTHER_NAME = re.compile(
    r"[^\x00-\x7f]_?(?:ID|Id|id)$|(?:编号|編號|单号|單號|订单号|账号|帳號|邮箱|郵箱|番号|アドレス|번호|이메일|아이디)$|"
    r"^(?:รหัส|หมายเลข|อีเมล|رقم|معرف|بريد)(?![^\W_]*(?:หน้า|الصفحة))"
)
EMAIL_NAME = re.compile(r"^e?mail$|_e?mail$|^email_?address$|[a-z]Email$", re.I)
FORMATS = frozenset({"email", "idn-email", "uuid"})
NEVER_FORMATS = frozenset({"date", "date-time", "time", "duration", "uri", "hostname", "regex"})
DIGIT = r"(?:\\d|\[0-9\]|\[[A-Z0-9a-f-]*0-9[A-Za-z0-9-]*\])"
# A literal prefix before digits (`^ORD-[0-9]{5}$`, `^(DOC|SHT)-\d+$`, `^#W[0-9]{7}$`), or six digits or more.
PREFIXED = re.compile(rf"^\^?\(?(?:\?:)?#?[A-Za-z]{{1,12}}(?:\|[A-Za-z]+)*\)?(?:\\?[-_#/.])?{DIGIT}")
LONG_NUMBER = re.compile(rf"^\^?{DIGIT}\{{(\d+)(?:,\d*)?\}}\$?$")
CODE = re.compile(r"(?=[^\s]*\d)[\w#@./-]*[A-Za-z#][\w#@./-]*")
NO_CODE = re.compile(r"\d{4}-\d{2}(?:-\d{2})?(?:T.*)?|\d{1,2}[:.]\d{2}.*|[A-Za-z]{1,2}\d+(?::[A-Za-z]{1,2}\d+)?", re.I)
ENOUGH = 3
MOST_LEVELS, MOST_PARTS = 12, 10_000  # of a schema whose arguments are looked for


@dataclass(frozen=True, slots=True)
class Identifiers:
    """For each tool, the paths of the arguments that are identifiers. Lists on a path are read element by element."""

    paths: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def of(self, tool: str, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield (where, value) for each identifier in the arguments."""
        for path in self.paths.get(tool, ()):
            yield from iterate_scalars_at(arguments, path, "")


def iterate_scalars_at(value: Any, path: Path | None, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the strings and numbers at a path, or (path None) anywhere below."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from iterate_scalars_at(item, path, f"{where}[{i}]")
    elif isinstance(value, dict):
        keys = value if not path else path[:1]
        for key in keys:
            if key in value:
                yield from iterate_scalars_at(
                    value[key], path[1:] if path else None, f"{where}.{key}" if where else key
                )
    elif not path and value is not None and not isinstance(value, bool):
        yield where, value


def find_ungrounded(view: TrajectoryView, ids: Identifiers) -> list[Issue]:
    """Report each identifier in a call that no message before the call contains."""
    issues = []
    said = Mentions()
    said.add_normalized(Toolset.of(view.t).system)
    for i, message in enumerate(view.t.messages):
        for j, call in enumerate(message.calls):
            if not call.arguments or call.name not in ids.paths:
                continue
            for where, value in ids.of(call.name, call.arguments):
                if not said.contains(value) and not said.contains_phone(value):
                    detail = f"{where}: {str(value)[:80]!r} was not said before"
                    issues.append(Issue(code=Code.UNGROUNDED_ID, where=f"messages[{i}].calls[{j}]", detail=detail))
        if message.role != "assistant":
            said.add(view.texts[i], low=view.lows[i], by_user=message.role == "user")
    return issues


def infer_identifiers(tools: Sequence[ToolSpec], seeds: Sequence[Trajectory] = ()) -> Identifiers:
    """Return the identifiers: as declared by a tool, else inferred from its schema and from how the seeds use each argument."""
    uses = observe_uses(seeds) if any(tool.identifiers is None for tool in tools) else {}
    paths: dict[str, tuple[Path, ...]] = {}
    for tool in tools:
        if tool.identifiers is not None:
            found = [tuple(name.split(".")) for name in tool.identifiers]
        else:
            leaves = list(iterate_schema_leaves(tool.parameters, tool.parameters))
            found = [path for path, schema in leaves if is_identifier(path, schema, uses.get((tool.name, path)))]
        if found:
            paths[tool.name] = tuple(dict.fromkeys(found))
    return Identifiers(paths)


@dataclass(slots=True)
class ArgumentUse:
    """How often the seeds set an argument, mention its value before, copy it from a result, and use a code as its value."""

    set: int = 0
    said: int = 0
    copied: int = 0
    codes: int = 0
    values: Counter[str] = field(default_factory=Counter)


def observe_uses(seeds: Sequence[Trajectory]) -> dict[tuple[str, Path], ArgumentUse]:
    uses: dict[tuple[str, Path], ArgumentUse] = defaultdict(ArgumentUse)
    for seed in seeds:
        said, results = Mentions(seed.system), Mentions(None)
        for message in seed.messages:
            for call in message.calls:
                for where, value in iterate_scalars_at(call.arguments or {}, None, ""):
                    path = tuple(re.sub(r"\[\d+\]", "", where).split("."))
                    use = uses[call.name, path]
                    use.set += 1
                    use.values[str(value)] += 1
                    use.said += said.contains(value)
                    use.copied += results.contains(value)
                    use.codes += looks_like_code(value)
            if message.role != "assistant":  # the assistant may have invented an identifier
                said.add(message.text, by_user=message.role == "user")
            if message.role == "tool":
                results.add(message.text)
    return uses


def looks_like_code(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 4 <= len(value) <= 64
        and CODE.fullmatch(value) is not None
        and NO_CODE.fullmatch(value) is None
    )


def is_identifier(path: Path, schema: dict[str, Any], use: ArgumentUse | None) -> bool:
    if "enum" in schema or "const" in schema or schema.get("format") in NEVER_FORMATS:
        return False
    kinds = schema.get("type", "string")
    listed = kinds if isinstance(kinds, list) else [kinds]
    if not any(kind in ("string", "integer", "number") for kind in listed):
        return False
    if looks_like_identifier(path[-1], schema):
        # Set several times and never mentioned before: the agent writes it freely, so it is no identifier.
        return not (use and use.set >= ENOUGH and not use.said and len(use.values) > 1)
    return bool(use and use.set >= ENOUGH and use.copied == use.codes == use.set and len(use.values) > 1)


def looks_like_identifier(name: str, schema: dict[str, Any]) -> bool:
    if schema.get("format") in FORMATS:
        return True
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        # A pattern is more precise than a name.
        long = LONG_NUMBER.match(pattern)
        if PREFIXED.match(pattern) or (long and int(long[1]) >= 6):
            return True
    return bool(
        (NAME.search(name) and not NOT_A_NAME.search(name)) or EMAIL_NAME.search(name) or OTHER_NAME.search(name)
    )


def iterate_schema_leaves(schema: Any, root: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every place for a scalar in a schema, with the innermost schema that describes it. References can make a schema
    infinite: at most `MOST_LEVELS` levels and `MOST_PARTS` parts are read."""
    waiting: list[tuple[Any, Path, int]] = [(schema, (), 0)]
    for _ in range(MOST_PARTS):
        if not waiting:
            return
        part, path, depth = waiting.pop()
        if not isinstance(part, dict) or depth > MOST_LEVELS:
            continue
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for step in reference[2:].split("/"):
                target = target.get(step) if isinstance(target, dict) else None
            waiting.append((target, path, depth + 1))
            continue
        branches = [b for key in ("anyOf", "oneOf", "allOf") for b in part.get(key) or [] if isinstance(b, dict)]
        inner = [(branch, path, depth + 1) for branch in branches]
        properties = part.get("properties")
        if isinstance(properties, dict):
            inner += [(each, (*path, name), depth + 1) for name, each in properties.items()]
        if "items" in part:
            inner.append((part["items"], path, depth + 1))
        elif path and not branches and not properties:
            yield path, part
        waiting += reversed(inner)
