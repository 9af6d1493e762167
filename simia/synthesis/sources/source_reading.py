"""Find and read sources: documents, OpenAPI files, MCP servers, packs (EnvFactory §3.2)."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from simia.errors import UserError
from simia.importers.mcp import import_server
from simia.importers.openapi import read_document
from simia.importers.openapi_schema import OpenAPIDocument
from simia.importers.openapi_tools import find_operations
from simia.pack import Pack
from simia.reward_spec import StrictModel
from simia.synthesis.sources.html_text import extract_text
from simia.synthesis.sources.source_document import GivenTool, SourceDocument, choose_free_name, collect_passages
from simia.synthesis.sources.source_tools import convert_tool
from simia.tool import ToolSpec
from simia.trajectory import digest

TEXT, HTML, OPENAPI = (".txt", ".text", ".md", ".markdown", ".rst"), (".html", ".htm"), (".json", ".yaml", ".yml")
LARGEST = 8 << 20
MCP = "mcp:"
FORMS = "give a text, Markdown, HTML or OpenAPI file, a folder of them, a pack, or mcp:COMMAND"


class SourcePlace(StrictModel):
    """Where a source is, before it is read."""

    name: str
    """Name of the file or command. Quotes name a server by the name that it gives itself."""
    kind: str
    """`text`, `html`, `openapi`, `pack` or `mcp`."""
    place: str
    """Path, or the command of a server."""
    content_hash: str = Field("", description="SHA-256 of the file; empty for a server, whose listing is hashed.")


def find_sources(given: Sequence[str]) -> list[SourcePlace]:
    """List the sources of these paths and commands in their order; folders are searched by name.

    Raises:
        UserError: there is none, or one does not exist or is of no known kind.
    """
    found: dict[str, SourcePlace] = {}
    for each in given:
        for source in locate_source(each):
            if source.place not in (known.place for known in found.values()):
                name = choose_free_name(source.name, found)
                found[name] = source.model_copy(update={"name": name})
    return list(found.values())


def locate_source(given: str) -> Iterator[SourcePlace]:
    if given.startswith(MCP):
        words = split_command(given)
        name = " ".join(Path(word).name if "/" in word else word for word in words)
        yield SourcePlace(name=name, kind="mcp", place=shlex.join(words))
        return
    if given.startswith(("http://", "https://")):
        raise UserError(
            f"sources: {given} is an address: download it first, or name a search function (search.function)"
        )
    path = Path(given).expanduser()
    if path.is_dir() and not (path / "pack.yaml").is_file():
        yield from list_folder(path)
    elif path.is_dir():
        body = b"".join(each.read_bytes() for each in (path / "pack.yaml", path / "tools.json") if each.is_file())
        yield SourcePlace(
            name=path.absolute().name, kind="pack", place=str(path.absolute()), content_hash=hash_content(body)
        )
    elif path.is_file():
        if (kind := detect_source_kind(path)) is None:
            raise UserError(f"sources: {given} is not a supported kind of file: {FORMS}")
        yield make_place(path, path.name, kind)
    else:
        raise UserError(f"sources: {given} does not exist: {FORMS}")


def list_folder(folder: Path) -> Iterator[SourcePlace]:
    """The sources in a folder, by path; files of other kinds and hidden ones are left out. Raises `UserError` if there is none."""
    files = [
        (file, kind)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and (kind := detect_source_kind(file)) is not None
    ]
    if not files:
        raise UserError(f"sources: {folder} has no text, Markdown, HTML or OpenAPI file: {FORMS}")
    yield from (make_place(file, file.relative_to(folder).as_posix(), kind) for file, kind in files)


def make_place(path: Path, name: str, kind: str) -> SourcePlace:
    return SourcePlace(name=name, kind=kind, place=str(path.absolute()), content_hash=hash_content(path.read_bytes()))


def hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def detect_source_kind(path: Path) -> str | None:
    """The kind of a file by its suffix; None for one that is no source. JSON and YAML count if they are OpenAPI documents."""
    suffix = path.suffix.lower()
    if suffix in OPENAPI:
        with path.open("rb") as file:
            return "openapi" if b"openapi" in file.read(LARGEST) else None
    return "text" if suffix in TEXT else "html" if suffix in HTML else None


def split_command(source: str) -> list[str]:
    """The words of `mcp:COMMAND`, with the whole paths of files. Raises `UserError`."""
    try:
        words = shlex.split(source.removeprefix(MCP))
    except ValueError as error:
        raise UserError(f"sources: {source}: {error}") from None
    if not words:
        raise UserError(f"sources: {source} names no command: write mcp:COMMAND, such as 'mcp:python server.py'")
    return [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]


def make_source_absolute(source: str) -> str:
    """The source by its whole path, for a resume from another folder."""
    if source.startswith(MCP):
        return MCP + shlex.join(split_command(source))
    path = Path(source).expanduser()
    return str(path.absolute()) if path.exists() else source


def read_source(source: SourcePlace, folder: Path | None = None) -> SourceDocument:
    """Read a source. A server is started in the sandbox, in the given empty folder.

    Raises:
        UserError: it cannot be read, is empty, or is larger than 8 MB.
    """
    if source.kind == "mcp":
        assert folder is not None
        import_server(shlex.split(source.place), out=folder / "server")
        named = orjson.loads((folder / "server" / "mcp.json").read_bytes())["server"].get("name")
        known = source.model_copy(update={"name": str(named or source.name)})
        return read_pack_source(known, Pack.load(folder / "server"))
    if source.kind == "pack":
        return read_pack_source(source, Pack.load(Path(source.place)))
    path = Path(source.place)
    if path.stat().st_size > LARGEST:
        raise UserError(f"sources: {source.name} is larger than {LARGEST >> 20} MB: split it into smaller files")
    if source.kind == "openapi":
        return read_api(source)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"sources: {source.name} is not UTF-8 text") from None
    text = (extract_text(text) if source.kind == "html" else text).strip()
    if not text:
        raise UserError(f"sources: {source.name} is empty")
    return make_document(source, [text])


def read_api(source: SourcePlace) -> SourceDocument:
    """Read the operations of an OpenAPI file as tools, and its texts."""
    value = read_document(source.place)
    found = find_operations(OpenAPIDocument(value))
    if not found.operations:
        raise UserError(f"sources: {source.name} has no operation that can be a tool")
    licence = (value.get("info") or {}).get("license")
    named = licence.get("identifier") or licence.get("name") if isinstance(licence, dict) else None
    tools = convert_specs([(tool, False if plan["reads"] else None) for tool, plan in found.operations])
    return make_document(source, collect_passages(value), tools, licence=str(named or "unknown"))


def read_pack_source(source: SourcePlace, pack: Pack) -> SourceDocument:
    """Read the tools and texts of a pack, such as one that `simia import mcp` wrote."""
    specs = [(tool, find_writes(tool)) for tool in pack.tools]
    rows: list[dict[str, Any]] = [
        tool.model_dump(mode="json", include={"description", "parameters"}) for tool in pack.tools
    ]
    served = pack.root is not None and (pack.root / "mcp.json").is_file()  # then the importer wrote the description
    words = [pack.policy or "", "" if served else pack.description]
    passages = collect_passages([*({"description": each} for each in words), *rows])
    listed = source
    if not source.content_hash:
        listed = source.model_copy(
            update={"content_hash": hash_content(digest([pack.policy, pack.description, rows]).encode())}
        )
    return make_document(listed, passages, convert_specs(specs), licence=pack.licence)


def find_writes(tool: ToolSpec) -> bool | None:
    """Whether a tool of a pack may change the state; None if nothing says so."""
    if tool.writes is not None:
        return bool(tool.writes)
    annotations = tool.extra.get("annotations")
    return False if isinstance(annotations, dict) and annotations.get("readOnlyHint") is True else None


def convert_specs(specs: Sequence[tuple[ToolSpec, bool | None]]) -> list[GivenTool]:
    found: dict[str, GivenTool] = {}
    for spec, writes in specs:
        tool = convert_tool(spec, writes, found)
        found[tool.name] = tool
    return list(found.values())


def make_document(
    source: SourcePlace, passages: list[str], tools: Sequence[GivenTool] = (), licence: str = "unknown"
) -> SourceDocument:
    return SourceDocument(
        name=source.name, kind=source.kind, content_hash=source.content_hash, licence=licence, passages=passages, tools=list(tools),
    )  # fmt: skip
