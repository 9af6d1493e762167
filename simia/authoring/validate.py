"""`simia pack validate`: every check of a pack that needs no agent."""

from __future__ import annotations

from collections.abc import Sequence

from simia.authoring.code_lint import lint_code
from simia.authoring.findings import Fault, Finding
from simia.authoring.name_checks import check_pack_names, suggest_names
from simia.authoring.tool_tests import run_tests
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack, find_pack_file
from simia.terminal import write_count
from simia.tool import ToolSpec


async def validate_pack(
    pack: Pack, *, unsafe: bool = False, read: Sequence[str] = ()
) -> tuple[list[Finding], list[str]]:
    """Return findings, and lines that say what was checked. `read`: files and folders that the code may read.

    Raises `UserError` for files that cannot be read, and for a request that was not granted.
    """
    facts = [
        f"{write_count(len(pack.tools), 'tool')}, {len(pack.user_tools)} of the user's, {write_count(len(pack.tasks), 'task')}, "
        f"{write_count(len(pack.tests), 'test')}, {write_count(len(pack.seeds), 'seed')}"
    ]
    unsolved = sum(not task.solved and task.id not in pack.references for task in pack.tasks)
    if unsolved:
        all_of_them = "; set backend_settings.knowledge=schema there" if unsolved == len(pack.tasks) else ""
        facts.append(
            f"{unsolved} of {write_count(len(pack.tasks), 'task')} without a solution: the models of a simulated world see the task alone{all_of_them}"
        )
    findings = [*check_seeds_and_tasks(pack), *check_pack_names(pack)]
    if pack.executable is None or pack.root is None:
        return findings, [*facts, "no executable world: it can be simulated only"]
    if pack.executable.python is None:  # an imported world runs foreign code, which its user does not change
        how = pack.executable.isolation
        findings += lint_code(find_pack_file(pack.root / "pack.yaml", pack.executable.code), isolation=how)
        if pack.file and pack.file.checks:
            findings += lint_code(find_pack_file(pack.root / "pack.yaml", pack.file.checks), isolation=how)
    backend = ExecutableBackend(pack, unsafe=unsafe, read=list(read))
    try:
        declared = await backend.declared()
        for by, specs in (("agent", pack.tools), ("user", pack.user_tools)):
            findings += compare_tools_with_code(specs, declared.get(by, {}))
        if not any(finding.fault is Fault.MISSING_TOOL for finding in findings):
            findings += await run_tests(pack, backend)
    finally:
        await backend.close()
    return findings, facts


def check_seeds_and_tasks(pack: Pack) -> list[Finding]:
    known = {tool.name for tool in (*pack.tools, *pack.user_tools)}
    found = []
    for seed in pack.seeds:
        own = {tool.name for tool in seed.tools} or known
        strange = sorted({call.name for _, _, call in seed.calls()} - own - known)
        if strange:
            found.append(Finding(Fault.UNKNOWN_TOOL, f"seed {seed.task_id}", suggest_names(strange, own | known)))
    for task in pack.tasks:
        strange = sorted({action.name for action in task.actions} - known)
        if strange:
            found.append(Finding(Fault.UNKNOWN_TOOL, f"task {task.id}", suggest_names(strange, known)))
    return found


def compare_tools_with_code(specs: list[ToolSpec], declared: dict[str, dict[str, object]]) -> list[Finding]:
    """Find differences between tools.json and the code: names, arguments, required arguments."""
    found = []
    for spec in specs:
        code = declared.get(spec.name)
        if code is None:
            found.append(Finding(Fault.MISSING_TOOL, spec.name, "the code has no such tool"))
            continue
        if "parameters" not in code:
            continue
        listed, needed = set(spec.parameters.get("properties", {})), set(spec.parameters.get("required", []))
        has, must = set(list_as_text(code["parameters"])), set(list_as_text(code["required"]))
        if listed != has:
            odd = ", ".join(sorted(listed ^ has))
            found.append(
                Finding(
                    Fault.OTHER_ARGUMENTS, spec.name, f"arguments that only one of tools.json and the code has: {odd}"
                )
            )
        elif must - needed:
            odd = ", ".join(sorted(must - needed))
            found.append(Finding(Fault.OTHER_ARGUMENTS, spec.name, f"the code requires {odd}, but tools.json does not"))
    named = {spec.name for spec in specs}
    found += [
        Finding(Fault.UNLISTED_TOOL, name, "tools.json does not list it") for name in declared if name not in named
    ]
    return found


def list_as_text(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
