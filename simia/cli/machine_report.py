"""The lines of `simia doctor --report`: versions, extras and the sandbox, to be pasted into a bug report. No paths, names or keys are in them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires

from simia.terminal import write_count
from simia.version import __version__

NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
TRAINERS = ("llamafactory", "trl", "verl", "ragen")


def write_version() -> str:
    """The line of `simia --version`: the version comes first."""
    return f"{__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})"


def describe_machine() -> Iterator[str]:
    """Yield the lines of the report."""
    from simia.trainers.versions import NEEDS, list_installed
    from simia.venvs import normalize_name

    installed = list_installed()
    needs = list_requirements()
    yield f"simia {__version__}"
    yield f"Python {platform.python_version()} ({platform.python_implementation()})"
    yield f"system: {describe_system()}"
    yield f"sandbox: {describe_sandbox()}"
    yield f"packages: {list_versions(needs.get('', []), installed)}"
    extras = {name: needs[name] for name in sorted(needs) if name and name not in TRAINERS}
    present = {name: wanted for name, wanted in extras.items() if all(each in installed for each in wanted)}
    for name, wanted in present.items():
        yield f"extra {name}: {list_versions(wanted, installed)}"
    yield f"extras not installed: {', '.join(name for name in extras if name not in present) or 'none'}"
    of_trainers = dict.fromkeys(normalize_name(name) for wanted in NEEDS.values() for name in wanted)
    yield f"of trainers: {list_versions([name for name in of_trainers if name in installed], installed)}"
    names = sorted(name for name in os.environ if name.startswith("SIMIA_"))
    yield f"variables set: {', '.join(names) or 'none'}"


def list_requirements() -> dict[str, list[str]]:
    """Extra → normalised names that it requires, '' for simia itself; empty where simia is on the path and not installed."""
    from simia.venvs import normalize_name

    try:
        lines = requires("simia") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        name = NAME.match(requirement)
        extra = EXTRA.search(marker)
        if name is not None:
            found.setdefault(extra[1] if extra else "", []).append(normalize_name(name[0]))
    return found


def list_versions(names: list[str], installed: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {installed.get(name, 'missing')}" for name in names) or "none"


def describe_system() -> str:
    libc = " ".join(platform.libc_ver()).strip()
    parts = [
        f"{platform.system()} {platform.release()} {platform.machine()}",
        libc,
        write_count(os.cpu_count() or 1, "CPU"),
    ]
    return ", ".join(part for part in parts if part)


def describe_sandbox() -> str:
    """Whether untrusted code can run here, without the path of bubblewrap."""
    from simia.sandbox.capabilities import probe_isolation

    isolation = probe_isolation()
    return isolation.lines()[0][1].replace(f" at {isolation.bwrap}", "")
