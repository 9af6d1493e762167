"""Pack: the description of one environment: tools, policy, seeds, tasks, tests, and the code of an executable world if there is one.

On disk, a pack is a folder with `pack.yaml`, which names the other files; only `format` and `name` are required. `format: 2` is
current, and `format: 1` is still read. Loading a pack runs none of its code. `simia.amplification.seeds` also reads a file of seed
trajectories in any dialect as a pack; each row then has its own tools and system text.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import orjson
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from simia import search_path
from simia.config_errors import explain_validation_error
from simia.errors import UserError, explain_json_error, require_type
from simia.pack_files import (
    MOST_TOOL_COUNT,
    MOST_TOOLS,
    MOST_WORDS,
    check_name,
    parse_yaml,
    read_bytes,
    read_lines,
    refuse_duplicate_keys,
    summarize_error,
)
from simia.pack_provenance import PackProvenance, ToolEdge
from simia.reward_spec import Match
from simia.state_schema import StateSchema
from simia.task import CallLimits, Task, name_scenarios
from simia.terminal import write_count
from simia.tool import SchemaError, ToolSpec, read_tool
from simia.tool_test import ToolTest
from simia.trajectory import Trajectory

T = TypeVar("T", bound=BaseModel)
FORMAT_2_KEYS = ("state_schema", "graph", "references", "provenance", "limits")


def check_printable(text: str) -> str:
    """Check a text that is shown when a grant is requested: no control characters and nothing invisible."""
    if not text or not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


Printable = Annotated[str, AfterValidator(check_printable)]


class ExecutableSpec(BaseModel):
    """How the pack's code is run. `simia.kit` describes the code."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    code: str = "tools.py"
    """The pack's Python file."""
    object: str
    """Name of the class or object in `code` that is the world."""
    isolation: Literal["shared", "process", "sandbox"] = "process"
    """`shared`: many episodes in one process, for code that you wrote; `process`: one process per episode, for all other code;
    `sandbox`: one sandbox per episode, with a private folder to write to, for worlds of files and of programs."""
    root: str = Field("/scratch", pattern=r"^/([a-z][a-z0-9_-]*)?$")
    """With `isolation: sandbox`: path of the private folder; `/`: the whole root is writable."""
    python: Printable | None = None
    """Name of the virtual environment whose interpreter runs the code (simia.venvs), or absolute path of an interpreter, which is a request
    like those in `needs`. null: simia's own interpreter."""
    needs: list[Printable] = Field(default_factory=list)
    """Further files that the code reads: names of environments in simia's cache, or absolute paths of the host. The paths are requests:
    the person who opens the pack must grant them."""
    network: bool = False
    """Whether the code requests access to the machine's network, which the person who opens the pack must grant."""
    variables: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(default_factory=list)
    """Environment variables that the code requests, which the person who opens the pack must grant."""
    hidden: list[str] = Field(default_factory=list)
    """Files and folders of the pack that only checks may read, such as expected results; the checks file is always hidden. Tasks, tests
    and seeds are never put into a sandbox."""
    checks_arguments: bool = True
    """Whether arguments are checked against the tool's schema before a call. false: the code checks them, as in some imported benchmarks."""
    repeatable: bool = True
    """Whether calls may be repeated. false: calls have effects outside of the environment. They are never repeated, and an episode whose
    process is lost is aborted."""
    clock: datetime | None = None
    """The world's time at the start of an episode."""


class PackFile(BaseModel):
    """`pack.yaml`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    format: Literal[1, 2]
    """Version of the pack format; `simia pack upgrade` converts 1 to 2."""
    name: str
    """The pack's name."""
    description: str = ""
    """A description of the environment in a few sentences."""
    licence: str = "unknown"
    """Licence of the pack's data, as an SPDX expression."""
    policy: str | None = None
    """File with the system text."""
    tools: str | None = None
    """JSON file with the agent's tools."""
    user_tools: str | None = None
    """JSON file with the user's own tools."""
    seeds: str | None = None
    """JSONL file of seed trajectories."""
    state: str | None = None
    """JSON file, or folder, with the world's state at the start."""
    tasks: str | None = None
    """JSONL file of tasks."""
    tests: str | None = None
    """JSONL file of tool tests."""
    checks: str | None = None
    """Python file with the functions that checklist rewards name."""
    match: dict[str, Match] = Field(default_factory=dict)
    """Dotted path of the state → how its values are compared. Takes precedence over the schema's `match`."""
    state_schema: StateSchema | None = Field(None, alias="schema")
    """Tables of the state with keys, references, values and constraints (format 2)."""
    graph: str | None = None
    """JSONL file with the typed edges of the tool graph (format 2)."""
    references: str | None = None
    """JSONL file of reference trajectories, which `simia pack record` writes (format 2)."""
    provenance: PackProvenance | None = None
    """How the pack was made (format 2)."""
    limits: CallLimits = Field(default_factory=CallLimits)
    """Limits of every episode (format 2)."""
    executable: ExecutableSpec | None = None
    """How the pack's code is run. null: it has none."""
    user: Literal["none", "scripted", "llm"] = "none"
    """The user simulator that is used if none is chosen."""
    ends: list[str] = Field(default_factory=list)
    """Tools whose success ends the episode in a simulated world. The code of an executable world calls `finish` instead."""
    evaluation: bool = False
    """Whether the tasks are those of a benchmark, so that no episode is exported as training data."""
    instructions: str | None = None
    """File with instructions to the user simulator, for all tasks."""

    @model_validator(mode="after")
    def check_format(self) -> PackFile:
        """Refuse keys of format 2 in a file of format 1."""
        newer = [name for name in FORMAT_2_KEYS if name in self.model_fields_set]
        if self.format == 1 and newer:
            key = "schema" if newer[0] == "state_schema" else newer[0]
            raise ValueError(f"{key} belongs to format 2: write format: 2")
        return self


class Pack(BaseModel):
    """The description of one environment: tools, policy, seeds and tasks, and how its code is run if it has any.

    `Pack.load` reads one. Seeds without tools or a system text of their own get the pack's.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, use_attribute_docstrings=True)

    name: str
    """The pack's name."""
    description: str = ""
    """A description of the environment in a few sentences."""
    licence: str = "unknown"
    """Licence of the pack's data, as an SPDX expression."""
    policy: str | None = None
    """The system text."""
    tools: list[ToolSpec] = Field(default_factory=list)
    """The agent's tools."""
    user_tools: list[ToolSpec] = Field(default_factory=list)
    """The user's own tools."""
    seeds: list[Trajectory] = Field(default_factory=list)
    """Seed trajectories."""
    match: dict[str, Match] = Field(default_factory=dict)
    """Dotted path of the state → how its values are compared."""
    executable: ExecutableSpec | None = None
    """How the pack's code is run. null: it has none."""
    user: Literal["none", "scripted", "llm"] = "none"
    """The user simulator that is used if none is chosen."""
    ends: list[str] = Field(default_factory=list)
    """Tools whose success ends the episode in a simulated world."""
    evaluation: bool = False
    """Whether the tasks are those of a benchmark, so that no episode is exported as training data."""
    state_schema: StateSchema | None = None
    """Tables of the state; None: not declared."""
    limits: CallLimits = Field(default_factory=CallLimits)
    """Limits of every episode."""
    root: Path | None = Field(None, exclude=True)
    """The pack's folder; None: it was not read from one."""
    file: PackFile | None = Field(None, exclude=True)
    """`pack.yaml` as read."""

    @classmethod
    def load(cls, name: str | Path) -> Pack:
        """Read a pack. None of its code is run.

        Args:
            name: A bundled pack by name, or the path of a folder with a `pack.yaml`. A `Path` that exists is never a name.

        Returns:
            The pack. Its tasks and tests are read when they are first used.

        Raises:
            UserError: There is no such pack, or one of its files is malformed.
        """
        require_type("name", name, str, Path)
        root = name if isinstance(name, Path) and name.exists() else search_path.find_resource("seeds", name)
        path = root / "pack.yaml" if root.is_dir() else root
        if not path.is_file():
            raise UserError(f"{root} is not a pack: it has no pack.yaml")
        if path.suffix in (".jsonl", ".json", ".parquet"):
            raise UserError(
                f"{path} is not a pack (a folder with a pack.yaml); to make one from seeds: simia pack new --from trajectories {path} --out DIR"
            )
        if path.suffix not in (".yaml", ".yml"):
            raise UserError(f"{path} is not a pack: give a folder with a pack.yaml")
        try:
            data = parse_yaml(path)
            head = PackFile.model_validate(data)
        except ValidationError as error:
            raise UserError(f"{path}: {explain_validation_error(PackFile, error, data)[1][:MOST_WORDS]}") from None
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{path}: {summarize_error(error)}") from None
        check_names(path.parent, head)
        pack = cls(
            name=head.name,
            description=head.description,
            licence=head.licence,
            match={**(head.state_schema.list_policies() if head.state_schema else {}), **head.match},
            state_schema=head.state_schema,
            limits=head.limits,
            executable=head.executable,
            user=head.user,
            ends=head.ends,
            evaluation=head.evaluation,
            root=path.parent,
            file=head,
        )
        if head.policy:
            pack.policy = read_pack_text(find_pack_file(path, head.policy)).strip()
        if head.tools:
            pack.tools = read_tools(find_pack_file(path, head.tools))
        if head.user_tools:
            pack.user_tools = read_tools(find_pack_file(path, head.user_tools))
        names = {tool.name for tool in pack.tools}
        if unknown := [name for name in head.ends if name not in names]:
            raise UserError(f"{path}: ends: there is no tool {unknown[0]!r}")
        if head.seeds:
            pack.seeds = [pack.adopt(t) for t in read_seeds(find_pack_file(path, head.seeds))]
        return pack

    def adopt(self, seed: Trajectory) -> Trajectory:
        """Return a copy of a seed. It takes the pack's name, system text, tools and licence if it has none of its own."""
        changes: dict[str, Any] = {"pack": seed.pack or self.name}
        if seed.system is None:
            changes["system"] = self.policy
        if not seed.tools:
            changes["tools"] = [tool.public for tool in self.tools]
        if not seed.user_tools:
            changes["user_tools"] = [tool.public for tool in self.user_tools]
        changes["provenance"] = seed.provenance.model_copy(update={"licence": seed.provenance.licence or self.licence})
        return seed.model_copy(update=changes)

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of `tasks.jsonl`. Raises `UserError` for a malformed row or a duplicate id."""
        path = self.path_of("tasks")
        return name_scenarios(read_pack_rows(path, Task, unique="task id")) if path else []

    @cached_property
    def tests(self) -> list[ToolTest]:
        """The tool tests of `tests.jsonl`. Raises `UserError` for a malformed row or a duplicate name."""
        path = self.path_of("tests")
        return read_pack_rows(path, ToolTest, unique="test name") if path else []

    @cached_property
    def references(self) -> dict[str, Trajectory]:
        """Task id → its reference trajectory, as `simia pack record` wrote it. Raises `UserError` for a malformed row."""
        path = self.path_of("references")
        rows = read_pack_rows(path, Trajectory, Trajectory.from_row) if path else []
        return {row.task_id: self.adopt(row) for row in rows if row.task_id is not None}

    @cached_property
    def graph(self) -> list[ToolEdge]:
        """The edges of the tool graph. Raises `UserError` for a malformed row."""
        path = self.path_of("graph")
        return read_pack_rows(path, ToolEdge) if path else []

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self.tasks}

    def task(self, task_id: str) -> Task:
        """Return the task of that id. Raises `UserError` that names the nearest id."""
        found = self._by_id.get(task_id)
        if found is None:
            near = difflib.get_close_matches(task_id, self._by_id, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {write_count(len(self._by_id), 'task')}"
            raise UserError(f"pack {self.name} has no task {task_id!r}: {hint}")
        return found

    def path_of(self, what: str) -> Path | None:
        """Return the file that a key of `pack.yaml` names (`state`, `tasks`, `tests`, …); None if it names none."""
        name = getattr(self.file, what, None)
        return find_pack_file(self.root / "pack.yaml", name) if self.root and name else None


def check_names(pack: Path, head: PackFile) -> None:
    """Raise `UserError` if `pack.yaml` names a file or folder that is not in the pack."""
    how = head.executable
    for key in ("state", "tasks", "tests", "checks", "instructions", "graph", "references"):
        if name := getattr(head, key):
            check_name(pack, key, name)
    for name in [how.code, *how.hidden] if how else ():
        check_name(pack, "executable.code" if how and name == how.code else "executable.hidden", name)


def find_pack_file(pack_yaml: Path, name: str) -> Path:
    """A file of the pack. One outside of its folder, also through a link, is refused: an untrusted pack must not put host files into prompts."""
    path = pack_yaml.parent / name
    if "\0" in name or not path.is_file() or not path.resolve().is_relative_to(pack_yaml.parent.resolve()):
        raise UserError(f"{pack_yaml} names {name!r}, which is not a file in the pack's folder")
    return path


def read_pack_text(path: Path) -> str:
    try:
        return read_bytes(path, MOST_TOOLS).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None


def read_tools(path: Path) -> list[ToolSpec]:
    try:
        data = read_bytes(path, MOST_TOOLS)
        rows = orjson.loads(data)
        refuse_duplicate_keys(path, data, rows)
        if not isinstance(rows, list):
            raise SchemaError("a list of tools is expected")
        if len(rows) > MOST_TOOL_COUNT:
            raise SchemaError(f"{len(rows):,} tools; at most {MOST_TOOL_COUNT:,} are read")
        tools = [read_tool(row, number) for number, row in enumerate(rows, start=1)]
    except (orjson.JSONDecodeError, SchemaError) as error:
        raise UserError(f"{path}: {summarize_error(error)}") from None
    counts = Counter(tool.name for tool in tools)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice:
        raise UserError(f"{path}: duplicate tool name {twice!r}; names must be unique")
    return tools


def read_pack_rows(path: Path, cls: type[T], make: Callable[[Any], T] | None = None, unique: str = "") -> list[T]:
    """Read a JSONL file of a pack. Raises `UserError` with the line's number for a malformed line, for a value of the field `unique` (`task
    id`: of `id`) that an earlier line has, and, without `make`, for a key that occurs twice."""
    rows: list[T] = []
    lines: dict[str, int] = {}
    field = unique.rpartition(" ")[2]
    for number, line in read_lines(path):
        row = None
        try:
            row = orjson.loads(line.strip())
            if make is None:  # trajectories are written by programs, and many
                refuse_duplicate_keys(path, line, row, number)
            rows.append(make(row) if make else cls.model_validate(row))
        except orjson.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: {explain_json_error(error)}") from None
        except ValidationError as error:
            raise UserError(
                f"{path}, line {number}: {explain_validation_error(cls, error, row)[1][:MOST_WORDS]}"
            ) from None
        if unique and (first := lines.setdefault(value := getattr(rows[-1], field), number)) != number:
            raise UserError(
                f"{path}, line {number}: duplicate {unique} {value!r}; {field}s must be unique (line {first} has it too)"
            )
    return rows


def read_seeds(path: Path) -> list[Trajectory]:
    """Read the seeds of a pack folder, in simia's own row format."""
    return read_pack_rows(path, Trajectory, Trajectory.from_row)
