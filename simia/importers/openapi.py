"""Import OpenAPI 3.0 and 3.1 documents as packs: their operations become tools that can be simulated at once.

With a base address the pack can also be played against the real API: a driver (`openapi_world`) sends the requests from the
sandbox, to that address only, and only if the user who opens the pack grants the network. Credentials are named and never
written into the pack: `Authorization: Bearer ${API_KEY}` uses the value of a granted environment variable. Such episodes are
not reproducible (`repeatable: false`).
"""

from __future__ import annotations

import math
import re
import shlex
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.config import ConfigLoader, load_yaml
from simia.errors import UserError
from simia.importers.openapi_schema import OpenAPIDocument
from simia.importers.openapi_tools import FoundOperations, find_operations
from simia.terminal import write_count
from simia.venvs import Say

LARGEST = 64 << 20
SECONDS = 30.0
MOST_NODES = 1_000_000
SHOWN = 5
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*(.+)")
QUERY = re.compile(r"([A-Za-z0-9_.~-]+)=(.+)")
POLICY = """\
You use {title} through its tools. Look things up before you change them, and change only what was asked for. Calls are \
authorized for you where that is needed: never ask anybody for a key or a password.
"""


class DocumentLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without dates, by libyaml where there is one: documents are large."""


DocumentLoader.yaml_implicit_resolvers = ConfigLoader.yaml_implicit_resolvers


def import_api(
    source: str,
    out: Path | None = None,
    *,
    base_url: str | None = None,
    only: Sequence[str] = (),
    auth: Sequence[str] = (),
    say: Say = lambda line: None,
) -> Path:
    """Write the pack of a document (a file or an address) and return its folder.

    `only`: patterns of operations; `auth`: headers (`Name: value`) or query parameters (`name=value`) with `${VARIABLE}` in place
    of secrets. Raises `UserError` for an invalid document, one without operations, and a secret that would be written into the pack.
    """
    value = read_document(source)
    title = read_info_text(value, "title") or "the API"
    credentials = [parse_credential(each) for each in auth]
    address = check_address(base_url) if base_url else None
    if credentials and address is None:
        raise UserError("--auth is for calls of the real API: give its address with --base-url")
    found = find_operations(OpenAPIDocument(value), only)
    if not found.operations:
        raise UserError(f"{source} has no operation{explain_no_tools(value, found, only)}")
    out = out or Path(re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "api")
    refuse_existing(out)
    with draft_pack(out) as draft:
        write_openapi_pack(draft, out.resolve().name, value, found, address, credentials)
    report_operations(out, found, address, credentials, say)
    server = find_server_address(value)
    if server and address is None:
        say(f"to play it against the real API, import it with --base-url {server}")
    return out


def explain_no_tools(value: dict[str, Any], found: FoundOperations, only: Sequence[str]) -> str:
    """Explain why a document has no usable operation."""
    if only:
        return f" that fits {', '.join(only)}"
    if found.lines:
        return f": {found.lines[0]}"
    if b'"$ref":"#' not in orjson.dumps(value.get("paths")) and b'"$ref"' in orjson.dumps(value.get("paths")):
        return ": its paths refer to other files, which are not read; bundle them into one file first, for example with redocly"
    return ": its `paths` are empty"


def report_operations(
    out: Path, found: FoundOperations, address: str | None, credentials: Sequence[dict[str, str]], say: Say
) -> None:
    for line in found.lines[:SHOWN]:
        say(line)
    if len(found.lines) > SHOWN:
        say(f"and {write_count(len(found.lines) - SHOWN, 'more operation')}")
    if found.schemes:
        say(f"it needs credentials ({'; '.join(found.schemes)}); no tool has an argument for them")
    if address:
        grants = ["--network", *(f"--variable {name}" for name in list_credential_variables(credentials))]
        say(
            f"calls go to {address} where the network is granted: simia rollout {shlex.quote(str(out))} {' '.join(grants)}"
        )
    say(f"{out}: {write_count(len(found.operations), 'tool')}")


def list_credential_variables(credentials: Sequence[dict[str, str]]) -> list[str]:
    """List the environment variables that hold the credentials."""
    return sorted({name for each in credentials for name in VARIABLE.findall(each["value"])})


# -- read ---------------------------------------------------------------------------------------------------------


def read_document(source: str) -> dict[str, Any]:
    """Read a document. Raises `UserError` if it is not an OpenAPI 3 document."""
    body = read_bytes(source)
    try:
        value = orjson.loads(body.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        value = read_yaml(body, source)
    if isinstance(value, dict) and "swagger" in value:
        raise UserError(
            f"{source} is Swagger {value['swagger']}: convert it to OpenAPI 3 first, for example with swagger2openapi"
        )
    if not isinstance(value, dict) or not str(value.get("openapi", "")).startswith("3."):
        raise UserError(f"{source} is not an OpenAPI 3 document: `openapi: 3.…` is missing at its top")
    return value


def read_bytes(source: str) -> bytes:
    """Read a file or fetch an address. Raises `UserError`, also if it is too large."""
    path = Path(source).expanduser()
    remote = source.startswith(("http://", "https://"))
    if not remote and not path.is_file():
        raise UserError(f"{source} is not a file: give an OpenAPI document, or its address")
    try:
        with urllib.request.urlopen(source, timeout=SECONDS) if remote else path.open("rb") as file:
            body: bytes = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(f"{source} cannot be {'fetched' if remote else 'read'}: {reason}") from None
    if len(body) > LARGEST:
        raise UserError(f"{source} is larger than {LARGEST >> 20} MB")
    return body


def read_yaml(body: bytes, source: str) -> Any:
    """Read a YAML document that is not JSON, as JSON values: keys and dates become text. Raises `UserError`, also if its aliases and merge
    keys would expand without bound."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{source} is not UTF-8 text") from None
    where = f"{source}, which is not JSON,"
    return yaml_to_json(load_yaml(text, where, DocumentLoader, largest=LARGEST, most=MOST_NODES))


def yaml_to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {format_key(key): yaml_to_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [yaml_to_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def format_key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    return "" if key is None else str(key)


def find_server_address(value: dict[str, Any]) -> str | None:
    """Return the document's first server address if it is absolute and has no variables."""
    given = value.get("servers")
    first = given[0].get("url") if isinstance(given, list) and given and isinstance(given[0], dict) else None
    return first if isinstance(first, str) and first.startswith(("http://", "https://")) and "{" not in first else None


def read_info_text(value: dict[str, Any], name: str) -> str:
    info = value.get("info")
    found = info.get(name) if isinstance(info, dict) else None
    return " ".join(found.split()) if isinstance(found, str) else ""


# -- check --------------------------------------------------------------------------------------------------------


def check_address(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UserError(f"{address} is not a base address: give one such as https://api.example.com/v1")
    if parts.username or parts.password:
        raise UserError(
            "the base address contains a password, which would be written into the pack: use --auth with ${VARIABLE}"
        )
    return address.rstrip("/")


def parse_credential(text: str) -> dict[str, str]:
    """Parse a header or query parameter. Raises `UserError` if its value names no variable."""
    header, query = HEADER.fullmatch(text), QUERY.fullmatch(text)
    if header is None and query is None:
        raise UserError(f"--auth takes 'Header: value' or 'parameter=value', not {text.partition(' ')[0]!r}…")
    name, value = (header or query).groups()  # type: ignore[union-attr]
    if not VARIABLE.search(value):
        raise UserError(
            f"--auth {name}: name the variable that holds the secret, as ${{API_KEY}}; a secret must not be written into a pack"
        )
    return {"in": "header" if header else "query", "name": name, "value": value}


# -- write --------------------------------------------------------------------------------------------------------


def write_openapi_pack(
    folder: Path,
    name: str,
    value: dict[str, Any],
    found: FoundOperations,
    address: str | None,
    credentials: Sequence[dict[str, str]],
) -> None:
    title, about = read_info_text(value, "title") or "the API", read_info_text(value, "description")
    head: dict[str, Any] = {
        "format": 1,
        "name": name,
        "description": f"{title} {read_info_text(value, 'version')}: {about[:300]}".rstrip(" :"),
        "licence": "unknown",
        "policy": "policy.md",
        "tools": "tools.json",
        "tasks": "tasks.jsonl",  # empty, for the author to fill
    }
    api = None
    if address:
        head["executable"] = {
            "code": "tools.py", "object": "OpenAPIWorld", "isolation": "sandbox", "repeatable": False, "network": True,
            **({"variables": names} if (names := list_credential_variables(credentials)) else {}),
        }  # fmt: skip
        plans = {tool.name: plan for tool, plan in found.operations}
        api = {"base_url": address, "auth": list(credentials), "tools": plans}
        copy_driver("openapi_world.py", folder / "tools.py")
    policy = POLICY.format(title=title) + (f"\nWhat its document says of it: {about[:3000]}\n" if about else "")
    tools = [tool.model_dump(mode="json", exclude_defaults=True) for tool, _ in found.operations]
    files = {"pack.yaml": head, "policy.md": policy, "tools.json": tools, "tasks.jsonl": [], "api.json": api}
    write_pack_files(folder, files)
