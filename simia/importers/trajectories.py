"""Make packs whose tasks are seed trajectories, so that RL and amplification start from the same seeds (Simia-RL, §2.3).

Seeds that the rules of amplification drop are left out. A pack has one system text: seeds with several texts become several packs, in
folders that are named by their suite (tau_retail) or numbered. If the source is a pack, its files are copied, so that its code can also
play the tasks.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia import event_loop, formats, search_path
from simia.authoring.goal_rewriting import PROMPT, GoalSettings, rewrite_goals
from simia.authoring.inferred_tools import infer_tools, merge_seed_tools
from simia.authoring.pack_draft import draft_pack, refuse_existing, write_pack_files
from simia.authoring.seed_tasks import ToolNames, make_seed_task, rename_calls
from simia.authoring.user_goals import UserGoal, describe_user
from simia.errors import Code, Issue, UserError
from simia.pack import Pack
from simia.pack_provenance import PackProvenance, SourceQuote
from simia.prompts import read_prompt
from simia.quality.check import Checks
from simia.quality.seed_filter import filter_seeds, filter_storable
from simia.quality.suites import detect_suite
from simia.refusals import RefusalCounts
from simia.task import Task
from simia.terminal import write_count
from simia.tool import SchemaError, ToolSpec
from simia.trajectory import Trajectory

MOST_PACKS = 64
SHOWN = 5
SEEDS = "seeds.jsonl"  # also the references: a seed is its task's solution
REPLACED = ("seeds", "references", "tasks")  # files of a source pack that are not copied
Say = Callable[[str], None]


@dataclass(slots=True)
class SeedSource:
    """Seeds that can be used, where they come from, and the pack if they come from one."""

    title: str
    seeds: list[Trajectory] = field(default_factory=list)
    read: int = 0
    refused: RefusalCounts = field(default_factory=RefusalCounts)
    pack: Pack | None = None


@dataclass(slots=True)
class SeedGroup:
    """Seeds that share a system text: the content of one pack."""

    policy: str | None
    names: ToolNames = field(default_factory=ToolNames)
    seeds: list[Trajectory] = field(default_factory=list)
    goals: list[UserGoal] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)


def import_trajectories(
    source: str,
    out: Path,
    *,
    dialect: str | None = None,
    settings: GoalSettings | None = None,
    say: Say = lambda line: None,
) -> list[Path]:
    """Write a pack with a task for each seed, or several packs in folders of `out`; return their folders.

    Args:
        source: A file of trajectories, a pack by name or path, or a data set (`hf:OWNER/NAME`).
        dialect: The dialect of a file. None: detected.
        settings: The model that writes the users' goals; None: none.

    Raises:
        UserError: `out` is not empty, no seed can be used, or the model failed.
    """
    refuse_existing(out)
    settings = settings or GoalSettings()
    found = read_seed_source(source, dialect)
    groups = group_seeds(found)
    used = sum(len(group.seeds) for group in groups)
    say(
        f"{write_count(used, 'seed')} of {found.read:,} read"
        + (f"; refused: {found.refused}" if found.refused.total else "")
    )
    for line in found.refused.describe_first()[:SHOWN]:
        say(f"  {line}")
    if not found.read:
        raise UserError(f"{source} holds no rows: give a file, pack or data set with seed trajectories")
    if not groups:
        raise UserError(
            f"{source}: none of its {write_count(found.read, 'row')} can become a task; see the reasons above"
        )
    if len(groups) > MOST_PACKS:
        raise UserError(
            f"{source}: its seeds have {len(groups)} different system texts, and each needs a pack of its own; at most {MOST_PACKS} packs are written: "
            "remove what differs from row to row, such as a date"
        )
    if settings.llm is not None:
        rewrite_groups(groups, settings, out, say)
    folders = [out] if len(groups) == 1 else [out / name for name in name_groups(groups)]
    with draft_pack(out) as draft:
        for folder, group in zip(folders, groups, strict=True):
            place = draft / folder.relative_to(out)
            place.mkdir(exist_ok=True)
            name = "-".join([out.resolve().name, *folder.relative_to(out).parts])
            write_seed_pack(place, name, group, found, settings)
            Pack.load(place).tasks  # noqa: B018 - a malformed file is reported before the folder gets its name
    for folder, group in zip(folders, groups, strict=True):
        renamed = ", ".join(group.names.renamed[:SHOWN])
        several = f"; several schemas, each a tool of its own: {renamed}" if renamed else ""
        say(
            f"{folder}: {write_count(len(group.tasks), 'task')}, {write_count(len(group.names.tools), 'tool')}{several}"
        )
    return folders


def read_seed_source(source: str, dialect: str | None) -> SeedSource:
    """Read the seeds and keep those that the rules of amplification keep. Raises `UserError`."""
    path = Path(source) if formats.is_hub_name(source) else search_path.find_resource("seeds", source)
    if not formats.is_data_set(path) and (path.is_dir() or path.suffix in (".yaml", ".yml")):
        pack = Pack.load(path)
        if not pack.seeds:
            raise UserError(
                f"pack {pack.name} has no seeds: `simia pack record` writes those of its tasks marked `seed`"
            )
        found = SeedSource(pack.name, read=len(pack.seeds), pack=pack)
        rows = pack.seeds
    else:
        title = formats.open_data_set(path).title if formats.is_data_set(path) else path.stem
        found, rows = SeedSource(title), []
        for row in formats.read(path, dialect):
            found.read += 1
            if isinstance(row, Trajectory):
                rows.append(row.model_copy(update={"task_id": row.task_id or f"{title}-{found.read}"}))
            else:
                found.refused.add(f"{path.name}:{row.line}", Issue(code=row.code, detail=row.detail))
        rows = add_missing_tools(rows)
    storable, unstorable = filter_storable(rows)
    found.seeds, unsound = filter_seeds(storable, Checks())
    for seed, issues in unstorable + unsound:
        found.refused.add(seed.provenance.source or seed.task_id or seed.id, issues[0])
    return found


def add_missing_tools(seeds: list[Trajectory]) -> list[Trajectory]:
    """Give seeds without tools those of the other seeds, and tools inferred from calls."""
    if all(seed.tools for seed in seeds):
        return seeds
    listed, _ = merge_seed_tools(seeds)
    tools = [*listed, *infer_tools(seeds, known=[spec.name for spec in listed])]
    return [seed if seed.tools else seed.model_copy(update={"tools": tools}) for seed in seeds]


def group_seeds(found: SeedSource) -> list[SeedGroup]:
    """Group the seeds by system text, with tools under unique names. A seed that cannot become a task is counted as refused."""
    groups: dict[str | None, SeedGroup] = {}
    taken: set[str] = set()
    for seed in found.seeds:
        policy = (seed.system or "").strip() or None
        group = groups.setdefault(policy, SeedGroup(policy))
        goal = describe_user(seed)
        try:
            if goal is None:
                raise SchemaError("its user says nothing")
            names = group.names.add(seed)
        except SchemaError as error:
            found.refused.add(
                seed.provenance.source or seed.task_id or seed.id, Issue(code=Code.BAD_ROW, detail=str(error))
            )
            continue
        first = seed.task_id or seed.id
        name, number = first, 2
        while name in taken:
            name, number = f"{first}-{number}", number + 1
        taken.add(name)
        group.seeds.append(rename_calls(seed.model_copy(update={"task_id": name}), names))
        group.goals.append(goal)
    kept = [group for group in groups.values() if group.seeds]
    for group in kept:
        recorded_from = (
            {task.id: task for task in found.pack.tasks if task.seed}
            if found.pack and fits_pack(group, found.pack)
            else {}
        )
        group.tasks = [
            make_seed_task(
                seed,
                goal,
                tools=None if len(seed.tools) == len(group.names.tools) else [spec.name for spec in seed.tools],
                base=recorded_from.get(seed.task_id or ""),
            )
            for seed, goal in zip(group.seeds, group.goals, strict=True)
        ]
    return kept


def name_groups(groups: list[SeedGroup]) -> list[str]:
    """Name the folders of several packs: by the suite of their tools, such as tau_retail, else by numbers."""
    suites = [detect_suite(group.seeds[0]).name for group in groups]
    distinct = len(set(suites)) == len(suites) and "generic" not in suites
    return suites if distinct else [str(number) for number in range(1, len(groups) + 1)]


def rewrite_groups(groups: list[SeedGroup], settings: GoalSettings, out: Path, say: Say) -> None:
    """Let the model write the goals of all tasks."""
    store = out.absolute().parent / f"{out.name}-replies"
    goals = [goal for group in groups for goal in group.goals]
    written = iter(event_loop.run_command(rewrite_goals(goals, settings, store)))
    kept = 0
    for group in groups:
        for at, task in enumerate(group.tasks):
            goal = next(written)
            kept += goal is None
            if goal is not None:
                group.tasks[at] = task.model_copy(update={"instruction": goal[0], "knows": goal[1]})
    say(
        f"{write_count(len(goals) - kept, 'goal')} written by {settings.llm and settings.llm.kind}; its replies are kept in {store}"
    )
    if kept:
        say(f"{write_count(kept, 'goal')} taken from the user's messages: no reply of the model could be used")


def write_seed_pack(folder: Path, name: str, group: SeedGroup, found: SeedSource, settings: GoalSettings) -> None:
    """Write one pack's files. Those of a source pack with the same system text are copied first."""
    licences = sorted({seed.provenance.licence or "unknown" for seed in group.seeds})
    licence = " AND ".join(licences) if "unknown" not in licences else "unknown"
    prompts = {PROMPT: read_prompt(PROMPT)[1]} if settings.llm is not None else {}
    provenance = PackProvenance(
        recipe="trajectories",
        sources=[SourceQuote(name=found.title, licence=licence)],
        model=getattr(settings.llm, "model", None),
        prompts=prompts,
    )
    head, files = describe_tools_and_policy(group)
    if found.pack is not None and fits_pack(group, found.pack):
        head, files = copy_source_pack(folder, found.pack), {}
    head |= {
        "format": 2,
        "name": name,
        "description": f"A task for each seed trajectory of {found.title}.",
        "licence": licence,
        "tasks": "tasks.jsonl",
        "references": SEEDS,
        "seeds": SEEDS,
        "user": "llm",
        **({"evaluation": True} if found.pack and found.pack.evaluation else {}),
        "provenance": provenance.model_dump(exclude_defaults=True),
    }
    files["tasks.jsonl"] = [write_task_row(task) for task in group.tasks]
    files[SEEDS] = [strip_shared(seed, len(group.names.tools)).to_row() for seed in group.seeds]
    write_pack_files(folder, {"pack.yaml": head, **files})


def describe_tools_and_policy(group: SeedGroup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys of pack.yaml and the files for the group's own tools and system text."""
    user_tools = {spec.name: spec for seed in group.seeds for spec in seed.user_tools}
    contents: dict[str, Any] = {
        "policy.md": f"{group.policy}\n" if group.policy else None,
        "tools.json": list_tool_rows(group.names.tools.values()),
        "user_tools.json": list_tool_rows(user_tools.values()),
    }
    files = {name: content for name, content in contents.items() if content}
    return {name.partition(".")[0]: name for name in files}, files


def list_tool_rows(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [spec.model_dump(mode="json", exclude_defaults=True) for spec in tools]


def write_task_row(task: Task) -> dict[str, Any]:
    """The row of tasks.jsonl, without defaults but with the kinds of the reward's parts."""
    parts = [{"kind": part.kind, **part.model_dump(mode="json", exclude_defaults=True)} for part in task.reward.parts]
    return {**task.model_dump(mode="json", exclude_defaults=True), "reward": {"parts": parts}}


def strip_shared(seed: Trajectory, tools: int) -> Trajectory:
    """Return the seed without the tools and the system text that its pack states."""
    changes: dict[str, Any] = {"pack": None, "system": None, "user_tools": []}
    return seed.model_copy(update=changes | ({"tools": []} if len(seed.tools) == tools else {}))


def fits_pack(group: SeedGroup, pack: Pack | None) -> bool:
    """Whether the source pack's files hold for this group: the same system text and the same tools."""
    if pack is None or pack.root is None or (group.policy or "") != (pack.policy or "").strip():
        return False
    return set(group.names.tools) == {tool.name for tool in pack.tools}


def copy_source_pack(folder: Path, pack: Pack) -> dict[str, Any]:
    """Copy a pack's files but its tasks, tests and seeds; return its pack.yaml without them. Links stay links."""
    assert pack.root is not None
    assert pack.file is not None
    left_out = {name for key in REPLACED if (name := getattr(pack.file, key))} | {".git", "__pycache__"}
    shutil.copytree(pack.root, folder, symlinks=True, dirs_exist_ok=True, ignore=lambda _, names: left_out & set(names))
    head = pack.file.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {key: value for key, value in head.items() if key not in REPLACED}
