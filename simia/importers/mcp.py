"""Import a server of the Model Context Protocol as a pack: its tools with their schemas, and a driver that runs it in the sandbox.

A server is untrusted code and runs only in the sandbox, even to list its tools. So the importer first writes a draft of the pack with one
tool, which lists the server's tools; it opens the draft with the back end that will run the episodes, then completes the pack. The listing
is untrusted too: a slightly invalid schema is repaired, and a tool with an unusable schema or name is left out, with a line each.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simia import event_loop
from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.envs.worlds.pack_requests import option_words
from simia.errors import Aborted, UserError
from simia.importers.mcp_packages import ServerProgram, find_program
from simia.importers.mcp_state import STATE_FILE, describe_state_tools, read_given_state, settle_state
from simia.pack import Pack
from simia.sandbox.grants import is_shown
from simia.sandbox.limits import MB, WorkerLimits
from simia.schema_repair import repair_schema
from simia.task import Task
from simia.terminal import write_count
from simia.tool import SchemaError, compile_schema
from simia.trajectory import ToolCall
from simia.venvs import Say

if TYPE_CHECKING:
    from simia.envs.worlds.executable import ExecutableBackend

LISTING = "list_server"  # the driver's tool
WORLD = "mcp_world"
TOOLS = '"""The driver of a server of the Model Context Protocol: mcp.json says which."""\n\nfrom mcp_world.world import MCPWorld\n\n__all__ = ["MCPWorld"]\n'
NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
SECRET = re.compile(r"authorization|cookie|secret|token|passw|api.?key|credential", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
OWN = ("ROOT", "SERVER", "CLOCK")  # of the driver
CLOCK = "2025-01-01T00:00:00"
EXAMPLES = 20
EXTRA = {"title": str, "annotations": dict, "outputSchema": dict}
NOTES = 300  # characters of a line about repairs


def import_server(
    command: Sequence[str] = (),
    *,
    out: Path | None = None,
    url: str | None = None,
    pip: Sequence[str] = (),
    npm: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    variables: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    reset: tuple[str, dict[str, Any]] | None = None,
    state_tools: tuple[str, str] | None = None,
    state: Path | None = None,
    clock_variable: str | None = None,
    needs: Sequence[Path] = (),
    start: float | None = None,
    network: bool = False,
    unsafe: bool = False,
    say: Say = lambda line: None,
) -> Path:
    """Write the pack of a server and return its folder.

    command: the server's program and arguments; with `pip` or `npm` a program of that package, optional if it has only one.
    url: a server that runs elsewhere, over streamable HTTP.
    folder: files that each episode starts from.
    environment: environment variables of the server; `${ROOT}` in them is the episode's folder, `${CLOCK}` the time it starts at.
    variables: names of granted environment variables, which the server gets with their values.
    reset: a tool, with its arguments, that is called when an episode starts. Agents do not see it.
    state_tools: a tool that takes the state and one that returns it (see `mcp_state`). Agents see neither.
    state: a JSON file with the state that episodes start from, for `state_tools`.
    clock_variable: an environment variable that is set to the pack's clock.
    needs: more folders that the server can read.
    start: seconds until the first answer, at most 18.
    network, unsafe: grants for the import only; opening the pack needs its own grants.

    Raises `UserError` for a server that cannot be installed, started or queried, or has no tools; and for an existing folder.
    """
    if bool(url) == bool(command or pip or npm):
        raise UserError("no server is given, or two are: give either --url, or a command, --pip or --npm")
    if url and not network:
        raise UserError("a server at a URL needs the network: add --network")
    if state and not state_tools:
        raise UserError("--state needs --state-tools: a tool that loads the state and one that saves it")
    if url and clock_variable:
        raise UserError("--clock-variable is for a server that is started here, not for --url")
    given_state = read_given_state(state)
    program = None if url else find_program(list(command), list(pip), npm, say)
    out = out or Path(name_folder(program))
    refuse_existing(out)
    given = [("--needs", each) for each in needs] + ([("--files", folder)] if folder else [])
    for option, path in given:
        if not path.is_dir():
            raise UserError(f"{option} {path}: there is no such folder")
    # Folders on the command line are granted for the import only; opening the pack needs its own grants.
    read = [] if program is None else [each for each in list_host_folders(program, needs) if not is_shown(each)]
    for each in read:
        say(f"readable for the server: {each}")
    how: dict[str, Any]
    if program is None:
        how = {"transport": "http", "url": url, "headers": dict(headers or {})}
    else:
        how = {"transport": "stdio", "command": program.command, "within": program.within}
        how["environment"] = {**(environment or {}), **({clock_variable: "${CLOCK}"} if clock_variable else {})}
    how["variables"] = variables = list_variables(how, variables)
    if start is not None:
        how["start"] = start
    if reset is not None:
        how["reset"] = {"tool": reset[0], "arguments": reset[1]}
    if folder is not None:
        how["files"] = "files"
    with draft_pack(out) as draft:
        if folder is not None:
            shutil.copytree(folder, draft / "files", symlinks=True)
        head = make_mcp_head(out.name, program, needs, how, network=network)
        write_draft(draft, head, how)
        grants: dict[str, Any] = {"network": network, "unsafe": unsafe, "variables": variables, "read": read}
        found = event_loop.run_command(list_server_tools(Pack.load(draft), **grants))
        if state_tools:
            how["state"] = describe_state_tools(state_tools, list_schemas(found["tools"]))
            write_pack_files(draft, {"mcp.json": how})
            found["state"] = event_loop.run_command(find_start_state(Pack.load(draft), given_state, say, **grants))
        write_mcp_pack(draft, head, how, found, program, say)
    report_import(out, found, say)
    return out


def list_variables(how: dict[str, Any], given: Sequence[str]) -> list[str]:
    """List the variables that the server gets: those given by name, and those that its command, variables or headers use.

    Raises `UserError` for a secret that would be written into the pack.
    """
    for option, values in (("--env", how.get("environment")), ("--header", how.get("headers"))):
        for name, value in (values or {}).items():
            if SECRET.search(name) and not VARIABLE.search(value):
                todo = "export it, and write ${NAME} in its place"
                raise UserError(f"{option} {name}: a secret must not be written into a pack; {todo}")
    if "url" in how and "@" in how["url"].partition("://")[2].partition("/")[0]:
        raise UserError(
            "--url contains a password: a secret must not be written into a pack; give a --header with ${NAME} in it"
        )
    texts = [how.get("url", ""), *how.get("command", [])]
    texts += [*how.get("environment", {}).values(), *how.get("headers", {}).values()]
    used = [name for text in texts for name in VARIABLE.findall(text) if name not in OWN]
    return list(dict.fromkeys([*given, *used]))


def name_folder(program: ServerProgram | None) -> str:
    """Make a default folder name from the server's, without common words."""
    word = Path(next((w for w in reversed(program.command) if "/" in w), "server")).stem if program else "server"
    word = re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")
    return f"mcp_{word}" if word not in ("index", "main", "server", "") else "mcp_server"


def list_host_folders(program: ServerProgram, needs: Sequence[Path]) -> list[str]:
    """List the folders of the host that a server reads: those of its program, and those given by name."""
    return list(dict.fromkeys(os.path.abspath(each) for each in [*program.needs, *map(str, needs)]))


def make_mcp_head(
    name: str, program: ServerProgram | None, needs: Sequence[Path], how: Mapping[str, Any], *, network: bool
) -> dict[str, Any]:
    inside = [program.within] if program and program.within else []
    inside += list_host_folders(program, needs) if program else []
    executable: dict[str, Any] = {"code": "tools.py", "object": "MCPWorld", "isolation": "sandbox", "python": "mcp"}
    asked = {"needs": inside, "network": network, "variables": how.get("variables")}
    if program is None:
        executable["repeatable"] = False
    if "${CLOCK}" in str(how):
        executable["clock"] = CLOCK
    return {
        "format": 1,
        "name": re.sub(r"[^A-Za-z0-9_.-]+", "_", name),
        "tools": "tools.json",
        "executable": executable | {key: value for key, value in asked.items() if value},
    }


def write_draft(folder: Path, head: dict[str, Any], how: dict[str, Any]) -> None:
    """Write a pack with one tool, which lists the server's tools."""
    files = {"pack.yaml": head, "mcp.json": how, "tools.json": [{"name": LISTING}], "tools.py": TOOLS}
    write_pack_files(folder, files)
    copy_driver(WORLD, folder / WORLD)


@contextlib.asynccontextmanager
async def open_backend(pack: Pack, **grants: Any) -> AsyncIterator[ExecutableBackend]:
    """Open a draft's back end. Raises `UserError` for a server that fails, in its words."""
    from simia.envs.worlds.executable import ExecutableBackend

    backend = ExecutableBackend(pack, limits=WorkerLimits(wall=20.0, output=16 * MB), **grants)
    try:
        yield backend
    except (UserError, Aborted) as error:
        words = str(error) if isinstance(error, UserError) else error.detail
        raise UserError(words.rpartition("ServerFailed: ")[2]) from None
    finally:
        await backend.close()


async def list_server_tools(pack: Pack, **grants: Any) -> dict[str, Any]:
    """List the server's tools, resources and prompts in the sandbox."""
    async with open_backend(pack, **grants) as backend:
        world = await backend.open(Task(id="list"))
        try:
            [done] = await world.call([ToolCall(id="1", name=LISTING, arguments={})])
        finally:
            await world.close()
    if done.error is not None or not isinstance(done.data, dict):
        raise UserError(f"the server cannot list its tools: {done.detail or done.content}")
    return done.data


async def find_start_state(pack: Pack, given: Any, say: Say, **grants: Any) -> Any:
    """Return the state that episodes start from, as the server saves it after it was loaded."""
    async with open_backend(pack, **grants) as backend:

        async def read(initial: dict[str, Any]) -> Any:
            world = await backend.open(Task(id="state", initial=initial))
            try:
                return await world.state()
            finally:
                await world.close()

        state, lines = await settle_state(read, given)
    for line in lines:
        say(remove_control_characters(line))
    return state


def write_mcp_pack(
    folder: Path,
    head: dict[str, Any],
    how: dict[str, Any],
    found: dict[str, Any],
    program: ServerProgram | None,
    say: Say,
) -> None:
    """Write the whole pack from the server's listing."""
    reset = (how.get("reset") or {}).get("tool")
    listed = [get_name(row) for row in found["tools"]]
    if reset is not None and reset not in listed:
        raise UserError(f"the server has no tool {reset!r} to reset it with; it has: {', '.join(listed)}")
    own = {reset, *(name for key, name in how.get("state", {}).items() if key in ("load", "save"))}
    tools, writes = convert_tools([row for row in found["tools"] if get_name(row) not in own], say)
    if not tools:
        raise UserError(
            f"the server has no tools{' that can be used' if found['tools'] else ''}: there is nothing to import"
        )
    server = found["server"]
    about = f"{server.get('title') or server.get('name') or 'a server'} {server.get('version', '')}".strip()
    described = [f"{about}, a server of the Model Context Protocol, run by its own code."]
    for kind, key in (("Resources", "resources"), ("Prompts", "prompts")):
        if found[kind.lower()]:
            names = ", ".join(str(each.get(key and "name")) for each in found[key])
            described.append(f"{kind} that no tool reaches: {remove_control_characters(names)[:300]}.")
    instructions = remove_control_characters(found["instructions"] or "", lines=True)
    head = head | {
        "description": " ".join(described),
        "licence": program.licence if program else "unknown",
        **({"policy": "policy.md"} if found["instructions"] else {}),
        "seeds": "seeds.jsonl",
        "tasks": "tasks.jsonl",
        **({"state": STATE_FILE} if "state" in how else {"match": {"files.*.base64": "exempt"}}),
        "user": "none",
    }
    kept = {key: found[key] for key in ("server", "protocol", "resources", "resource_templates", "prompts")}
    files = {
        "pack.yaml": head,
        "policy.md": instructions + "\n" if found["instructions"] else None,
        "tools.json": tools,
        "mcp.json": {**how, "tools": writes, **kept, "packages": program.packages if program else []},
        "tasks.jsonl": make_example_tasks(
            tools, writes, remote=program is None, state=program is not None or "state" in how
        ),
        STATE_FILE: found.get("state"),
        "seeds.jsonl": [],
    }
    write_pack_files(folder, files)


def convert_tools(rows: list[Any], say: Say) -> tuple[list[dict[str, Any]], dict[str, bool]]:
    """Return the tools in the form of a pack, and which of them write. Unusable tools are left out, with a line each."""
    tools: list[dict[str, Any]] = []
    writes: dict[str, bool] = {}
    for row in rows:
        name = get_name(row)
        if not NAME.fullmatch(name) or name in writes:
            why = "is listed twice" if name in writes else "has a name that cannot be written in a call"
            say(f"left out: the tool {remove_control_characters(name)[:80]!r} {why}")
            continue
        if get_object(row, "execution").get("taskSupport") == "required":
            say(f"left out: the tool {name}: it runs as a task in the background, and calls here wait for their result")
            continue
        try:
            schema, notes = repair_schema(row.get("inputSchema"))
            compile_schema(schema)
        except SchemaError as error:
            say(f"left out: the tool {name}: {remove_control_characters(str(error))[:200]}")
            continue
        if notes:
            say(f"repaired: the tool {name}: {remove_control_characters('; '.join(notes))[:NOTES]}")
        extra = {key: row[key] for key, kind in EXTRA.items() if isinstance(row.get(key), kind)}
        texts = [text for key in ("description", "title") if isinstance(text := row.get(key), str) and text]
        described = remove_control_characters(texts[0] if texts else "", lines=True)
        tools.append({"name": name, "description": described, "parameters": schema, "extra": extra})
        writes[name] = get_object(row, "annotations").get("readOnlyHint") is not True
    return tools, writes


def get_name(row: Any) -> str:
    """Return the name of a listed tool; empty for a row that has none."""
    name = row.get("name") if isinstance(row, dict) else None
    return name if isinstance(name, str) else ""


def get_object(row: dict[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def list_schemas(rows: list[Any]) -> dict[str, dict[str, Any]]:
    """Return tool → schema of its arguments, for the tools whose schema can be used."""
    found = {}
    for row in rows:
        if name := get_name(row):
            with contextlib.suppress(SchemaError):
                found[name] = repair_schema(row.get("inputSchema"))[0]
    return found


def make_example_tasks(
    tools: list[dict[str, Any]], writes: dict[str, bool], *, remote: bool, state: bool
) -> list[dict[str, Any]]:
    """Make an example task for each tool that only reads and has no required arguments, to be replaced by real tasks."""
    simple = [t for t in tools if not writes[t["name"]] and not t["parameters"].get("required")][:EXAMPLES]
    parts = [{"kind": "trace"}, *([{"kind": "state"}] if state else [])]
    return [
        {
            "id": f"example-{tool['name']}",
            "instruction": f"Use {tool['name']} once, and say in a sentence what it gives.",
            "reference": [{"name": tool["name"], "arguments": {}}],
            "reward": {"parts": parts},
            "tags": ["example"],
            "seed": not remote,
        }
        for tool in simple
    ]


def report_import(out: Path, found: dict[str, Any], say: Say) -> None:
    pack = Pack.load(out.absolute())
    parts = [write_count(len(pack.tools), "tool"), write_count(len(pack.tasks), "example task")]
    parts += [f"{len(found[key])} {key} (see mcp.json)" for key in ("resources", "prompts") if found[key]]
    say(f"{out}: {', '.join(parts)}")
    options = option_words(pack)
    if options:
        say(f"open it with {options}: a pack grants itself nothing")
    say(f"next: write tasks into {out}/tasks.jsonl, then {f'simia rollout {shlex.quote(str(out))} {options}'.strip()}")


def remove_control_characters(text: str, *, lines: bool = False) -> str:
    """Replace unprintable characters by spaces."""
    return "".join(c if c.isprintable() or (lines and c in "\n\t") else " " for c in text).strip()
