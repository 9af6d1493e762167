"""Start a pack from a list of tools, seed trajectories, an OpenAPI document or an MCP server.

`start_pack` detects the kind of a file by its content, writes a pack that can be validated and simulated at once, and
returns its gaps: each missing part with what cannot be done without it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia import formats
from simia.authoring import tool_lists
from simia.authoring.inferred_tools import MARK, infer_tools, merge_seed_tools
from simia.authoring.pack_draft import draft_pack, refuse_existing, write_pack_files
from simia.errors import UserError
from simia.pack import Pack
from simia.quality.check import Checks
from simia.quality.seed_filter import filter_seeds, filter_storable
from simia.terminal import write_count
from simia.tool import ToolSpec
from simia.trajectory import Trajectory
from simia.venvs import Say

KINDS = ("openapi", "mcp", "tools", "trajectories")
LARGEST = 64 << 20  # bytes; a larger file is not read to detect its kind
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """A missing part of a pack, and what it prevents."""

    what: str
    prevents: str

    def __str__(self) -> str:
        return f"{self.what}: {self.prevents}"


@dataclass(slots=True)
class PackMaterial:
    """Tools, seeds and system text from a source, with lines about what was left out."""

    tools: list[ToolSpec] = field(default_factory=list)
    seeds: list[Trajectory] = field(default_factory=list)
    policy: str | None = None
    lines: list[str] = field(default_factory=list)


def start_pack(folder: Path, source: str, *, dialect: str | None = None, say: Say = lambda line: None) -> list[Gap]:
    """Write a pack from a source. Raises `UserError` for a folder that is not empty and for an unusable source."""
    kind, rest = detect_kind(source)
    refuse_existing(folder)
    if kind == "mcp":
        from simia.importers.mcp import import_server

        import_server(shlex.split(rest), out=folder, say=say)
    elif kind == "openapi":
        from simia.importers.openapi import import_api

        import_api(rest, folder, say=say)
    else:
        found = read_tool_list(Path(rest)) if kind == "tools" else read_seed_file(Path(rest), dialect)
        for line in found.lines:
            say(line)
        write_source_pack(folder, found)
        say(f"{folder}: {write_count(len(found.tools), 'tool')}, {write_count(len(found.seeds), 'seed')}")
    return find_gaps(Pack.load(folder))


def detect_kind(source: str) -> tuple[str, str]:
    """Return (kind, location): as the prefix states (`openapi:FILE`), else by the file's content."""
    head, colon, rest = source.partition(":")
    if colon and head in KINDS and rest:
        return head, rest
    if source.startswith(("https://", "http://")):
        return "openapi", source
    if formats.is_data_set(source):
        return "trajectories", source
    path = Path(source).expanduser()
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file of tools, of trajectories or of an OpenAPI description")
    if not path.is_file():
        forms = ", ".join(["a file", *(f"{each}:…" for each in KINDS)])
        raise UserError(f"{source} does not exist: --from takes {forms}")
    value = read_first_value(path)
    if isinstance(value, dict) and ("openapi" in value or "swagger" in value):
        return "openapi", str(path)
    return ("tools" if tool_lists.read_tool_list(value) else "trajectories"), str(path)


def read_first_value(path: Path) -> Any:
    """Read a whole JSON or YAML file, or the first row of JSON lines; None for anything else. Raises `UserError` for invalid YAML."""
    suffix = path.suffix.lower()
    with report_unreadable(path), path.open("rb") as file:
        if suffix == ".jsonl":
            body = next((line for line in iter(lambda: file.readline(LARGEST), b"") if line.strip()), b"")
        else:
            body = file.read(LARGEST + 1)
    if len(body) > LARGEST:
        return None
    body = body.removeprefix(b"\xef\xbb\xbf")
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(body)
    if suffix not in (".yaml", ".yml"):
        return None
    from simia.importers.openapi import read_yaml

    return read_yaml(body, str(path))


@contextlib.contextmanager
def report_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def read_tool_list(path: Path) -> PackMaterial:
    """Read a list of tools: JSON, YAML, or one tool a line."""
    lines = path.suffix.lower() == ".jsonl"
    value = None if lines else read_first_value(path)
    if lines:
        with report_unreadable(path), contextlib.suppress(orjson.JSONDecodeError):
            value = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    rows = tool_lists.read_tool_list(value)
    if rows is None:
        raise UserError(
            f"{path} is not a list of tools: give tools with names and JSON Schemas in the form of simia, OpenAI, Anthropic or MCP"
        )
    specs, left_out = tool_lists.make_tool_specs(rows)
    if not specs:
        raise UserError(f"{path}: none of its {write_count(len(rows), 'tool')} can be used; {left_out[0]}")
    return PackMaterial(tools=specs, lines=left_out)


def read_seed_file(path: Path, dialect: str | None) -> PackMaterial:
    """Read seeds in any dialect, tools as listed or inferred from calls, and the most frequent system text as policy."""
    found = PackMaterial()
    rows = list(formats.read(path, dialect))
    refused = [row for row in rows if not isinstance(row, Trajectory)]
    found.lines += [f"{path.name}, line {bad.line} is left out: {bad.detail}" for bad in refused[:SHOWN]]
    if len(refused) > SHOWN:
        found.lines.append(f"and {write_count(len(refused) - SHOWN, 'more row')}")
    read, unkept = filter_storable([row for row in rows if isinstance(row, Trajectory)])
    found.lines += [f"{seed.task_id or 'a row'} is left out: {issues[0].detail}" for seed, issues in unkept]
    if not read:
        why = f": {refused[0].detail}" if refused else ""
        raise UserError(f"{path}: none of its {write_count(len(rows), 'row')} is a trajectory that can be read{why}")
    used = [seed for seed in read if seed.tools or any(seed.calls())]
    if used and len(used) < len(read):
        found.lines.append(f"left out: {write_count(len(read) - len(used), 'conversation')} without tools or calls")
        read = used
    listed, differ = merge_seed_tools(read)
    usable, lines = tool_lists.make_tool_specs([spec.model_dump(exclude={"identifiers"}) for spec in listed])
    names = {spec.name: spec for spec in listed}
    found.lines += lines
    if differ:
        found.lines.append(
            f"seeds give several schemas of {join_few(differ)}: tools.json has the first, seeds keep theirs"
        )
    found.tools = [names[spec.name] for spec in usable] + infer_tools(read, known=names)
    texts = Counter(seed.system.strip() for seed in read if seed.system and seed.system.strip())
    if texts:
        found.policy = texts.most_common(1)[0][0]
    if len(texts) > 1:
        others = sum(texts.values()) - texts[found.policy or ""]
        found.lines.append(
            f"the policy is the most frequent system text; {write_count(others, 'seed')} with another one"
        )
    found.seeds = [strip_shared(seed, number, path.stem, found) for number, seed in enumerate(read, start=1)]
    return found


def strip_shared(seed: Trajectory, number: int, stem: str, found: PackMaterial) -> Trajectory:
    """Return the seed without what its pack already states."""
    changes: dict[str, Any] = {"pack": None, "task_id": seed.task_id or f"{stem}-{number}"}
    if (seed.system or "").strip() == (found.policy or ""):
        changes["system"] = None
    if seed.tools == found.tools:
        changes["tools"] = []
    return seed.model_copy(update=changes)


def write_source_pack(folder: Path, found: PackMaterial) -> None:
    """Write the pack's files, under a temporary name until they are complete."""
    files: dict[str, Any] = {
        "policy.md": found.policy + "\n" if found.policy else None,
        "tools.json": [spec.model_dump(mode="json", exclude_defaults=True) for spec in found.tools],
        "seeds.jsonl": [seed.to_row() for seed in found.seeds] or None,
        "tasks.jsonl": [],  # for the author to fill
    }
    head = {"format": 1, "name": folder.resolve().name, "description": "", "licence": "unknown"}
    head |= {name.partition(".")[0]: name for name, content in files.items() if content is not None}
    with draft_pack(folder) as draft:
        write_pack_files(draft, {"pack.yaml": head, **files})


def find_gaps(pack: Pack) -> list[Gap]:
    """List what the pack lacks, and what each gap prevents."""
    guessed = [tool.name for tool in pack.tools if tool.description.startswith(MARK)]
    bare = [tool.name for tool in pack.tools if not tool.description.strip()]
    called = {call.name for seed in pack.seeds for _, _, call in seed.calls()}
    unused = [tool.name for tool in pack.tools if tool.name not in called]
    _, refused = filter_seeds(pack.seeds, Checks())
    reasons = Counter(str(issues[0].code) for _, issues in refused).most_common(SHOWN)
    why = ", ".join(f"{count} {code}" for code, count in reasons)
    simulated = pack.executable is None
    stateless = simulated and pack.path_of("state") is None
    candidates: list[tuple[object, str, str]] = [
        (not pack.tools, "no tools (tools.json)", "there is nothing that an agent could call"),
        (guessed, f"inferred schemas of {join_few(guessed)}", "arguments never seen are missing, types are guesses: correct them"),
        (bare, f"no description of {join_few(bare)}", "a model knows only the name"),
        (not pack.policy, "no policy (policy.md)", "agent and simulator get no rules"),
        (not pack.seeds, "no seeds (seeds.jsonl)", "`simia amplify` has no example to start from"),
        (pack.seeds and unused, f"no seed that calls {join_few(unused)}", "amplified trajectories will seldom call them"),
        (refused, f"no use of {len(refused)} of {write_count(len(pack.seeds), 'seed')}", f"the pre-filter refuses them ({why})"),
        (not pack.tasks, "no tasks (tasks.jsonl)", "`simia rollout` and `simia pack gate` have nothing to play"),
        (stateless, "no state (state.json)", "simulated results have no data to be consistent with"),
        (simulated, "no executable (tools.py)", "tools can only be simulated, and no reward can check the final state"),
    ]  # fmt: skip
    return [Gap(what, prevents) for missing, what, prevents in candidates if missing]


def join_few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
