"""Convert the operations of an OpenAPI document to tools: one argument object from parameters and body, and a request plan.

A tool's plan states where each argument goes, so that the driver can build the request without the document.
Credentials are not arguments: parameters of security schemes are left out and reported.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.importers.openapi_schema import JSON, OpenAPIDocument, make_compilable, summarize_schema
from simia.tool import SchemaError, ToolSpec

PLACE_KEYS = ("in", "name", "style", "explode")
METHODS = ("get", "head", "post", "put", "patch", "delete")
BODIES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
NOT_OURS = {("header", name) for name in ("accept", "content-type", "authorization")}  # set by the driver
UNFIT, MOST = re.compile(r"[^A-Za-z0-9_]+"), 64
DESCRIPTION, RETURNS = 1000, 500


@dataclass(slots=True)
class FoundOperations:
    """The usable tools with their request plans, the security schemes as text, and lines about operations that were left out."""

    operations: list[tuple[ToolSpec, dict[str, JSON]]] = field(default_factory=list)
    schemes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def find_operations(document: OpenAPIDocument, only: Sequence[str] = ()) -> FoundOperations:
    """Find every operation that can be a tool, with a line for each that cannot. `only`: patterns of names, or of `GET /path`."""
    found = FoundOperations()
    secret, found.schemes = find_credential_parameters(document)
    names: set[str] = set()
    for path, method, operation, shared in iterate_operations(document):
        name = name_operation(operation.get("operationId"), method, path)
        forms = name, f"{method.upper()} {path}"
        if only and not any(fnmatch.fnmatchcase(text, each) for each in only for text in forms):
            continue
        name = make_unique(name, names)
        try:
            if elsewhere := operation.get("$ref"):
                raise SchemaError(f"it is described elsewhere ({elsewhere}): bundle the document into one file first")
            found.operations.append(make_operation(document, name, method, path, operation, shared, secret))
        except SchemaError as error:
            found.lines.append(f"{method.upper()} {path} is left out: {error}")
            continue
        names.add(name)
    return found


def iterate_operations(document: OpenAPIDocument) -> Iterator[tuple[str, str, dict[str, JSON], list[JSON]]]:
    paths = document.value.get("paths")
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        item = document.resolve_object(item)
        shared = item.get("parameters")
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict) and str(path).startswith("/"):
                yield str(path), method, operation, shared if isinstance(shared, list) else []


def find_credential_parameters(document: OpenAPIDocument) -> tuple[set[tuple[str, str]], list[str]]:
    """Return the parameters that carry a credential, as (where, name), and all security schemes as text."""
    components = document.value.get("components")
    given = components.get("securitySchemes") if isinstance(components, dict) else None
    secret: set[tuple[str, str]] = set()
    schemes = []
    for name, scheme in (given if isinstance(given, dict) else {}).items():
        scheme = document.resolve_object(scheme)
        kind, where, key = (str(scheme.get(each, "")) for each in ("type", "in", "name"))
        if kind == "apiKey":
            secret.add((where, key.lower() if where == "header" else key))
            schemes.append(f"{name}: an API key in the {where} {key}")
        elif kind == "http":
            schemes.append(f"{name}: the header Authorization, {scheme.get('scheme', '')}")
        else:
            schemes.append(f"{name}: {kind or 'unknown'}")
    return secret, schemes


def name_operation(given: JSON, method: str, path: str) -> str:
    text = given if isinstance(given, str) and UNFIT.sub("", given) else f"{method} {path}"
    return UNFIT.sub("_", text).strip("_")[:MOST] or method


def make_unique(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name[: MOST - len(str(number)) - 1]}_{number}"
    return found


def make_operation(
    document: OpenAPIDocument, name: str, method: str, path: str, operation: dict[str, JSON], shared: list[JSON],
    secret: set[tuple[str, str]],
) -> tuple[ToolSpec, dict[str, JSON]]:  # fmt: skip
    """Convert one operation. Raises `SchemaError` if its arguments have no usable schema."""
    places: dict[str, dict[str, JSON]] = {}
    properties: dict[str, JSON] = {}
    required: list[str] = []

    def add(argument: str, where: str, schema: dict[str, JSON], place: dict[str, JSON], *, must: bool) -> None:
        safe = UNFIT.sub("_", argument).strip("_")[:MOST] or where
        safe = safe if safe not in places else make_unique(f"{where}_{safe}"[:MOST], set(places))
        places[safe] = place
        properties[safe] = schema
        if must:
            required.append(safe)

    for parameter in merge_parameters(document, operation, shared):
        where, key = str(parameter["in"]), str(parameter["name"])
        sent = (where, key.lower() if where == "header" else key)
        if sent in secret or sent in NOT_OURS:
            continue
        schema, text = make_parameter_schema(document, parameter)
        place = {each: parameter[each] for each in PLACE_KEYS if each in parameter} | ({"json": True} if text else {})
        add(key, where, schema, place, must=where == "path" or parameter.get("required") is True)

    body = document.resolve_object(operation.get("requestBody"))
    media = select_media_type(body.get("content"))
    if media:
        schema = document.schema(ensure_dict(body["content"][media]).get("schema"))
        needed = body.get("required") is True
        if has_plain_fields(schema):
            for key, inner in schema["properties"].items():
                must = needed and key in schema.get("required", [])
                add(str(key), "body", inner, {"in": "body", "name": str(key)}, must=must)
        else:
            schema = schema or {"description": f"The body, as {media}"}
            add("body", "body", schema, {"in": "body", "name": None}, must=needed)
    needs = {"required": required} if required else {}
    arguments = {"type": "object", "properties": properties, **needs, "additionalProperties": False}
    returns = find_return_schema(document, operation)
    tool = ToolSpec(
        name=name,
        description=describe_operation(method, path, operation, returns),
        parameters=make_compilable(arguments),
        extra={"returns": returns} if returns else {},
    )
    reads = method in ("get", "head")
    return tool, {"method": method.upper(), "path": path, "reads": reads, "media": media, "arguments": places}


def merge_parameters(
    document: OpenAPIDocument, operation: dict[str, JSON], shared: list[JSON]
) -> list[dict[str, JSON]]:
    """Merge the parameters of the path and of the operation, which override those of the same name."""
    own = operation.get("parameters")
    found: dict[tuple[str, str], dict[str, JSON]] = {}
    for each in [*shared, *(own if isinstance(own, list) else [])]:
        parameter = document.resolve_object(each)
        where, name = parameter.get("in"), parameter.get("name")
        if isinstance(name, str) and where in ("path", "query", "header", "cookie"):
            found[str(where), name] = parameter
    return list(found.values())


def make_parameter_schema(document: OpenAPIDocument, parameter: dict[str, JSON]) -> tuple[dict[str, JSON], bool]:
    """Return a parameter's schema with its description, and whether its value is sent as JSON text."""
    content = parameter.get("content")
    text = isinstance(content, dict) and bool(content)
    given = ensure_dict(next(iter(content.values()))).get("schema") if text else parameter.get("schema")  # type: ignore[union-attr]
    schema = document.schema(given)
    if isinstance(parameter.get("description"), str):
        schema = {**schema, "description": parameter["description"][:DESCRIPTION]}
    return schema, text


def select_media_type(content: JSON) -> str | None:
    """Select the media type of the body: JSON if it is accepted."""
    types = [str(each) for each in content] if isinstance(content, dict) else []
    json = next((each for each in types if each.split(";")[0].strip().endswith("+json")), None)
    return next(
        (each for known in BODIES for each in types if each.split(";")[0].strip() == known),
        json or next(iter(types), None),
    )


def has_plain_fields(schema: dict[str, JSON]) -> bool:
    """Check whether a body is an object whose properties can become arguments."""
    beside = schema.keys() & {"oneOf", "anyOf", "allOf", "not", "if", "patternProperties"}
    open_end = isinstance(schema.get("additionalProperties"), dict)
    return bool(schema.get("properties")) and schema.get("type", "object") == "object" and not beside and not open_end


def find_return_schema(document: OpenAPIDocument, operation: dict[str, JSON]) -> dict[str, JSON]:
    """Return the schema of a successful response."""
    responses = ensure_dict(operation.get("responses"))
    good = [*sorted(code for code in map(str, responses) if code.startswith("2")), "default"]
    by_code = {str(code): response for code, response in responses.items()}
    for code in good:
        content = document.resolve_object(by_code.get(code)).get("content")
        for media in content.values() if isinstance(content, dict) else ():
            schema = document.schema(ensure_dict(media).get("schema"), sent=False, largest=8_000)
            if schema:
                return schema
    return {}


def describe_operation(method: str, path: str, operation: dict[str, JSON], returns: dict[str, JSON]) -> str:
    words = [str(operation.get(each) or "").strip() for each in ("summary", "description")]
    text = "\n".join(dict.fromkeys(each for each in words if each))[:DESCRIPTION] or f"{method.upper()} {path}"
    text += "\nDeprecated." if operation.get("deprecated") is True else ""
    return text + (f"\nReturns: {summarize_schema(returns)[:RETURNS]}" if returns else "")


def ensure_dict(value: JSON) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
