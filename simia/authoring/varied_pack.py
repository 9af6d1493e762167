"""Write a pack with other names, identifiers and prices, consistent in state, tasks, solutions, goals, tests and texts (`simia pack vary`).

The gate verifies the tasks of the new pack. Tasks that fail are left out with the reason, and so are tasks that name an amount which does
not occur in any result. Code is copied unchanged, so values that occur in the code are not replaced.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from simia.authoring.gate_report import GateReport
from simia.authoring.pack_draft import (
    copy_pack_files,
    draft_pack,
    refuse_existing,
    replace_file,
    replace_rows,
    write_yaml,
)
from simia.authoring.tool_tests import run_test
from simia.authoring.variant_pack import refuse_inside
from simia.authoring.varied_prices import (
    choose_factor,
    iterate_amounts,
    iterate_columns,
    list_amounts,
    scale_amounts,
)
from simia.authoring.varied_task_amounts import replace_task_amounts
from simia.authoring.varied_values import (
    IN_CODE,
    ValueMapping,
    collect_identifiers,
    collect_people,
    is_in_files,
    list_words,
    map_identifiers,
    map_people,
    replace_values,
    split_by_code,
)
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from simia.envs.play.record import record_pack, write_recorded_pack
from simia.envs.play.solution_lengths import make_solution_limits
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.json_values import iterate_strings
from simia.pack import Pack
from simia.pack_files import parse_yaml, read_lines, read_state
from simia.quality.mentions import contains_phrase

ValueKind = Literal["names", "ids", "prices"]
KINDS: tuple[ValueKind, ...] = ("names", "ids", "prices")
NUMBER_IN_CODE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
UNCHANGED = ("id", "split", "tags", "extra", "measured", "kind", "name", "match", "combine", "pattern")
"""Fields of tasks, tests and tools whose texts are no values."""


@dataclass(slots=True)
class VariedPackReport:
    """What was replaced and what was not."""

    tasks: int
    replaced: dict[str, int] = field(default_factory=dict)
    """Kind of values → how many different ones were replaced."""
    factor: float | None = None
    """Factor of all amounts; None: amounts are unchanged."""
    scaled: list[str] = field(default_factory=list)
    """Columns of the state that hold amounts, by their names; empty if prices are kept."""
    unscaled: list[str] = field(default_factory=list)
    """The other columns with numbers; empty if prices are kept."""
    kept: dict[str, str] = field(default_factory=dict)
    """Value that was left alone → why."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Task that is not in the new pack → why."""
    tests_left_out: int = 0
    """Number of tool tests that fail in the new pack, such as those that expect an amount."""
    gate: GateReport | None = None
    """The gate's verdicts on the tasks of the new pack."""


async def vary_pack(
    pack: Pack,
    out: Path,
    *,
    seed: int = 0,
    keep: Collection[ValueKind] = (),
    replace: Mapping[str, str] | None = None,
    grants: Mapping[str, Any] | None = None,
    on_task: Callable[[], None] = lambda: None,
) -> VariedPackReport:
    """Write a pack with other values to a new folder; the same seed gives the same values.

    Args:
        keep: Kinds of values that are left as they are.
        replace: Further texts → others, such as the name of a shop or a sentence of the policy.

    Raises:
        UserError: The pack has no tasks, no code or no state in JSON; the folder exists; nothing can be replaced; or no task is left.
    """
    refuse_existing(out)
    root, tasks_path = pack.root, pack.path_of("tasks")
    if root is None or tasks_path is None or pack.executable is None:
        raise UserError(f"pack {pack.name} has no tasks or no code: varied tasks are verified by playing them")
    if pack.file and pack.file.state and not pack.file.state.endswith(".json"):
        raise UserError(f"pack {pack.name} keeps its state in files: values can be replaced only in a JSON state")
    state_path = pack.path_of("state")
    refuse_inside(out, root)
    state = read_state(state_path) if state_path is not None else {}
    rows = [orjson.loads(line) for _, line in read_lines(tasks_path)]
    report = VariedPackReport(len(rows))
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")) if path.is_file())
    rng = random.Random(f"vary/{seed}")
    states = [state, *(row.get("initial") or {} for row in rows)]
    mapping = map_values(pack, states, rows, code, keep, dict(replace or {}), rng, report)
    in_code = {float(each) for each in NUMBER_IN_CODE.findall(code)}
    if "prices" not in keep:
        report.factor = choose_factor(
            [each for one in states for each in iterate_amounts(one) if each not in in_code], rng
        )
        columns = {each for one in states for each in iterate_columns(one)}
        report.scaled, report.unscaled = (
            sorted({name for name, is_amount in columns if is_amount is kind}) for kind in (True, False)
        )
    if not mapping.values and report.factor is None:
        why = "all kinds are kept" if set(keep) == set(KINDS) else "no people, identifiers or prices in its state"
        raise UserError(f"pack {pack.name} has no values to replace: {why}")
    options = dict(grants or {})
    with draft_pack(out) as draft:
        copy_pack_files(root, draft)
        pattern = mapping.compile()

        def change(value: Any) -> Any:
            changed = replace_in_fields(value, lambda each: replace_values(each, pattern, mapping.values))
            return changed if report.factor is None else scale_amounts(changed, report.factor, in_code)

        write_changed_files(pack, draft, change, lambda text: replace_values(text, pattern, mapping.values), out.name)
        varied = [change({key: each for key, each in row.items() if key != "measured"}) for row in rows]
        replace_rows(draft / tasks_path.relative_to(root), varied)
        if report.factor is not None:
            policy = list_amounts(pack.policy or "")
            varied = await replace_task_amounts(
                pack, Pack.load(draft), varied, in_code | policy, report.left_out, options
            )
            replace_rows(draft / tasks_path.relative_to(root), varied)
        await verify(draft, tasks_path.relative_to(root), varied, report, options, on_task)
        await record_again(Pack.load(draft), options)
    return report


def map_values(
    pack: Pack,
    states: Sequence[Any],
    rows: Sequence[Any],
    code: str,
    keep: Collection[ValueKind],
    replace: dict[str, str],
    rng: random.Random,
    report: VariedPackReport,
) -> ValueMapping:
    """Choose a new value for every one that is replaced, and note those that are left alone."""
    mapping = ValueMapping()
    texts = [text for value in (*states, *rows) for text in iterate_strings(value)] + [pack.policy or ""]
    taken = {word for text in texts for word in re.findall(r"[\w#-]+", text)}
    if "ids" not in keep:
        known = {each for state in states for each in collect_identifiers(state)}
        free = split_by_code(known, code, mapping)
        found = map_identifiers(free, taken, rng)
        mapping.kept |= dict.fromkeys(sorted(free - found.keys()), "there are too few other numbers of its form")
        mapping.values |= found
        report.replaced["ids"] = len(found)
    if "names" not in keep:
        people = [collect_people(state) for state in states]
        names = set().union(*(each for each, _ in people))
        mails = set().union(*(each for _, each in people))
        parts = {part for name in names for part in name.split(" ")}
        own = map_people(names, split_by_code(mails, code, mapping), list_words(texts), rng)
        for part in sorted(parts & own.values.keys()):
            if contains_phrase(part, code):
                del own.values[part]
                mapping.kept[part] = IN_CODE
        mapping.values |= own.values
        mapping.kept |= own.kept
        report.replaced["names"] = len(own.values)
    for old, new in replace.items():
        if contains_phrase(old, code):
            mapping.kept[old] = IN_CODE
        elif not any(contains_phrase(old, text) for text in texts) and not is_in_files(pack, old):
            mapping.kept[old] = "no text of the pack has it"
        else:
            mapping.values[old] = new
            report.replaced["texts"] = report.replaced.get("texts", 0) + 1
    report.kept = mapping.kept
    return mapping


def replace_in_fields(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a row of a pack's file with its values changed; the fields `UNCHANGED` stay."""
    if isinstance(value, dict):
        return {
            key if key in UNCHANGED else change(key): each
            if key in UNCHANGED and not is_value(each)
            else replace_in_fields(each, change)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [replace_in_fields(each, change) for each in value]
    return change(value)


def is_value(value: Any) -> bool:
    """Whether a field with a name in `UNCHANGED` holds a value after all, such as a person's name (several words) or a mail address."""
    return isinstance(value, str) and (" " in value or "@" in value)


def write_changed_files(
    pack: Pack, draft: Path, change: Callable[[Any], Any], replace: Callable[[str], str], name: str
) -> None:
    """Write the files of a pack that hold values, except for its tasks."""
    root = pack.root
    assert root is not None
    for key in ("state", "tools", "user_tools"):
        if (path := pack.path_of(key)) is not None and path.is_file():
            values = orjson.loads(path.read_bytes())
            changed = (
                change(values)
                if key == "state"
                else replace_in_fields(values, lambda each: replace(each) if isinstance(each, str) else each)
            )
            replace_file(draft / path.relative_to(root), orjson.dumps(changed, option=orjson.OPT_INDENT_2) + b"\n")
    for key in ("tests", "seeds", "references"):
        if (path := pack.path_of(key)) is not None:
            replace_rows(draft / path.relative_to(root), [change(orjson.loads(line)) for _, line in read_lines(path)])
    for key in ("policy", "instructions"):
        if (path := pack.path_of(key)) is not None:
            replace_file(draft / path.relative_to(root), replace(path.read_text(encoding="utf-8")).encode())
    settings = parse_yaml(root / "pack.yaml")
    settings["name"] = re.sub(r"[^\w.-]", "-", name)
    settings["description"] = replace(str(settings.get("description", "")))
    replace_file(draft / "pack.yaml", write_yaml(settings).encode())


async def verify(
    draft: Path,
    tasks: Path,
    rows: list[Any],
    report: VariedPackReport,
    options: Mapping[str, Any],
    on_task: Callable[[], None],
) -> None:
    """Run the gate over the tasks, and leave those out that fail, and tool tests that do not hold. Raises `UserError` if none is left."""
    pack = Pack.load(draft)
    async with await open_environment(pack, user="none", **options) as environment:
        found = await verify_tasks(environment, pack.tasks, on_task=on_task) if pack.tasks else GateReport([])
        failed = {
            each.task: str(next(f for f in each.findings if f.refuses)) for each in found.verdicts if not each.passed
        }
        assert isinstance(environment.backend, ExecutableBackend)
        declared = await environment.backend.declared()
        faults = [
            any(f.refuses for f in await run_test(test, environment.backend, declared, pack.match))
            for test in pack.tests
        ]
    report.left_out |= failed
    found.verdicts = [each for each in found.verdicts if each.passed]
    report.gate = found
    if not found.verdicts:
        first = next(iter(report.left_out.items()), ("", "there are none"))
        raise UserError(f"no varied task can be used, for example {first[0]}: {first[1]}; nothing is written")
    replace_rows(draft / tasks, [row for row in rows if row["id"] not in failed])
    if (path := pack.path_of("tests")) is not None and any(faults):
        lines = [orjson.loads(line) for _, line in read_lines(path)]
        replace_rows(path, [line for line, fault in zip(lines, faults, strict=True) if not fault])
        report.tests_left_out = sum(faults)


async def record_again(pack: Pack, options: Mapping[str, Any]) -> None:
    """Record references and seeds again, in a pack that has such files."""
    if pack.path_of("references") is None and not any(task.seed for task in pack.tasks):
        return
    limits = make_solution_limits(pack.tasks)
    async with await open_environment(pack, user="scripted", episode=limits, **options) as environment:
        write_recorded_pack(pack, await record_pack(environment))
