"""Install servers from package registries, each in a cached environment of its own, and find their programs.

An environment is built like those of trainers: under a temporary name, renamed when it is complete. No code of the server runs
during installation: pip installs wheels only, npm runs no install scripts. `${SERVER}` in a command is the environment's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PathDistribution
from pathlib import Path

from simia.authoring.pack_draft import draft_pack
from simia.errors import UserError
from simia.importers.source_licence import UNKNOWN, find_source_licence
from simia.sandbox.grants import explain_broad, is_shown
from simia.search_path import cache_root
from simia.venvs import Say, ensure_packages, lock_file, normalize_name

REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*(.*)")
NPM = re.compile(r"((?:@[a-z0-9._~-]+/)?[a-z0-9._~-]+)(?:@([A-Za-z0-9._^~*<>=| -]+))?", re.IGNORECASE)
SERVER = "${SERVER}"
PATIENCE = 600.0
SOURCES = (".py", ".js", ".mjs", ".cjs", ".ts")


@dataclass
class ServerProgram:
    """How to start a server: its command, its cached environment, the folders that it reads, its packages and its licence."""

    command: list[str]
    within: str | None = None
    needs: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    licence: str = UNKNOWN


def install_from_pip(requirements: list[str], words: list[str], say: Say) -> ServerProgram:
    """Install a server from the Python index. The first requirement is its package; `words`: its program and arguments, if given."""
    found = REQUIREMENT.fullmatch(requirements[0].strip())
    if found is None:
        raise UserError(f"{requirements[0]!r} is not a package name: give one such as mcp-server-time")
    name, extras, version = found.groups()
    exact = version.strip() or f"=={find_latest_version(name)}"
    wanted = [f"{name}{extras or ''}{exact}", *requirements[1:]]
    python = ensure_packages("mcp_server", pip=wanted, say=say)
    home = python.parent.parent
    installed = {
        normalize_name(info.name.split("-")[0]): info for info in home.glob("lib/python*/site-packages/*.dist-info")
    }
    info = installed.get(normalize_name(name))
    if info is None:
        raise UserError(f"{name} is not in its own environment {home}: remove that folder and import again")
    scripts, licence = read_distribution(info)
    program, *arguments = words or [choose_program(name, scripts, f"--pip {name}")]
    if program not in scripts and arguments[:2] != ["-m", normalize_name(name).replace("-", "_")]:
        licence = next(
            (own for each in installed.values() for names, own in [read_distribution(each)] if program in names),
            UNKNOWN,
        )
    if not (home / "bin" / program).exists():
        raise UserError(f"{name} has no program {program!r}; it has: {', '.join(scripts) or 'none'}")
    packages = sorted("==".join(each.name.removesuffix(".dist-info").split("-")[:2]) for each in installed.values())
    # The environment's tools are not packages of the server.
    packages = [each for each in packages if each.split("==")[0] not in ("pip", "setuptools")]
    return ServerProgram([f"{SERVER}/bin/{program}", *arguments], home.name, [], packages, licence)


def find_latest_version(name: str) -> str:
    command = [sys.executable, "-P", "-m", "pip", "index", "versions", "--disable-pip-version-check", name]
    output = run_command(command, f"pip cannot find {name}")
    found = re.search(r"\(([^)]+)\)", output)
    if found is None:
        raise UserError(f"pip finds no version of {name}: give one, such as {name}==1.0")
    return found[1]


def read_distribution(info: Path) -> tuple[list[str], str]:
    """Return an installed package's programs and licence; its files are untrusted and may be malformed."""
    package = PathDistribution(info)
    scripts: list[str] = []
    licences: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        scripts = [point.name for point in package.entry_points if point.group == "console_scripts"]
    with contextlib.suppress(TypeError, ValueError):
        stated = [package.metadata[field] for field in ("License-Expression", "License")]
        licences = [str(text) for text in stated if text and "\n" not in text and len(text) < 80]
        classifiers = package.metadata.get_all("Classifier") or []
        licences += [text.rpartition("::")[2].strip() for text in classifiers if text.startswith("License ::")]
    return scripts, licences[0] if licences else UNKNOWN


def choose_program(package: str, programs: list[str], option: str) -> str:
    """Return the package's only program, or the one with the package's name."""
    bare = normalize_name(package.rpartition("/")[2])
    chosen = programs if len(programs) == 1 else [each for each in programs if normalize_name(each) == bare]
    if not chosen:
        what = f"several programs ({', '.join(programs)})" if programs else "no program"
        raise UserError(f"{package} has {what}: name the program to start: simia import mcp 'PROGRAM …' {option}")
    return chosen[0]


# -- npm ----------------------------------------------------------------------------------------------------------


def install_from_npm(package: str, words: list[str], say: Say) -> ServerProgram:
    """Install a server from the npm registry."""
    found = NPM.fullmatch(package.strip())
    if found is None:
        raise UserError(f"{package!r} is not a package name: give one such as @modelcontextprotocol/server-memory")
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise UserError("a server from npm needs Node.js and npm: install them (Debian: apt-get install nodejs npm)")
    name, asked = found.groups()
    printed = run_command(
        [npm, "view", f"{name}@{asked or 'latest'}", "version", "--json"], f"npm cannot find {package}"
    )
    versions = json.loads(printed or '""')
    version = versions[-1] if isinstance(versions, list) else versions
    if not version:
        raise UserError(f"npm cannot find {package}")
    home = ensure_npm(npm, name, version, say)
    manifest = json.loads((home / "node_modules" / name / "package.json").read_bytes())
    programs = manifest.get("bin") or {}
    if isinstance(programs, str):
        programs = {name.rpartition("/")[2]: programs}
    program, *arguments = words or [choose_program(name, list(programs), f"--npm {name}")]
    if program not in programs:
        raise UserError(f"{name} has no program {program!r}; it has: {', '.join(programs) or 'none'}")
    command = [node, f"{SERVER}/node_modules/{name}/{Path(programs[program])}", *arguments]
    needs = [] if node.startswith("/usr/") else [str(Path(node).resolve().parent.parent)]
    locked = json.loads((home / "node_modules" / ".package-lock.json").read_bytes()).get("packages", {})
    packages = sorted({f"{key.rpartition('node_modules/')[2]}@{each.get('version')}" for key, each in locked.items()})
    licence = manifest.get("license")
    return ServerProgram(command, home.name, needs, packages, licence if isinstance(licence, str) else UNKNOWN)


def ensure_npm(npm: str, name: str, version: str, say: Say) -> Path:
    """Return the environment of an npm package; build it if it does not exist."""
    key = f"mcp_server-{hashlib.sha256(f'npm {name}@{version}'.encode()).hexdigest()[:12]}"
    root = cache_root() / "envs"
    home = root / key
    root.mkdir(parents=True, exist_ok=True)
    with lock_file(root / f"{key}.lock"):
        if home.is_dir():
            return home
        for leftover in root.glob(f".{key}.*"):  # of killed builds
            shutil.rmtree(leftover)
        package = f"{name}@{version}"
        say(f"npm install {package}")
        with draft_pack(home) as draft:
            flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--prefix", str(draft)]
            run_command([npm, "install", *flags, package], f"npm cannot install {package}", cwd=draft)
    say(f"built {home}")
    return home


def run_command(command: list[str], fails: str, cwd: Path | None = None) -> str:
    """Return a program's output. Raises `UserError` with its error message."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=cwd
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{fails}: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower() and "log" not in line.lower()]
        why = " ".join((lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0].split())[:200]
        raise UserError(f"{fails}: {why}")
    return done.stdout


def find_local_program(words: list[str]) -> ServerProgram:
    """Make the command of a local program. The folders of the program become readable."""
    program = shutil.which(words[0])
    if program is None:
        raise UserError(f"there is no program {words[0]!r}: give its path, or install the server with --pip or --npm")
    path = Path(os.path.abspath(program))
    licence = UNKNOWN if is_shown(str(path)) else find_source_licence(path)
    return ServerProgram([str(path), *words[1:]], None, list_program_folders(path), [], licence)


def add_named_files(program: ServerProgram) -> ServerProgram:
    """Make the files and folders of this machine that the command names readable. If one is a source file, it is the server's own code:
    its licence is the server's licence, even if a package runs it.
    """
    needs = list(program.needs)
    for index, word in enumerate(program.command[1:], start=1):
        file = Path(word).expanduser()
        if ("/" in word or file.suffix in SOURCES) and file.exists():
            file = Path(os.path.abspath(file))
            needs.append(str(file if file.is_dir() else file.parent))
            program.command[index] = str(file)
            if file.suffix in SOURCES:
                program.licence = find_source_licence(file)
    program.needs = [each for each in dict.fromkeys(needs) if not is_shown(each)]
    for each in program.needs:
        if explain_broad(os.path.realpath(each)):
            raise UserError(f"the server would get all of {each} to read: move its files to a folder of their own")
    return program


def list_program_folders(path: Path) -> list[str]:
    """List the folders that a program needs: its own; for a program of a virtual environment, the environment and its interpreter's."""
    from simia.sandbox.bubblewrap import list_interpreter_paths

    home = path.parent.parent
    if (home / "pyvenv.cfg").is_file():
        return [str(home), *list_interpreter_paths(str(home / "bin" / "python"))]
    if path.name.startswith("python"):
        return list_interpreter_paths(str(path))
    return [str(path.parent), str(path.resolve().parent)]


def find_program(words: list[str], pip: list[str], npm: str | None, say: Say) -> ServerProgram:
    """Find the server's program with the folders that it reads, and install it if it comes from a registry, as `npx …` and
    `uvx …` do."""
    return add_named_files(find_command(words, pip, npm, say))


def find_command(words: list[str], pip: list[str], npm: str | None, say: Say) -> ServerProgram:
    if pip:
        return install_from_pip(pip, words, say)
    if npm:
        return install_from_npm(npm, words, say)
    if words and Path(words[0]).name in ("npx", "uvx"):
        package, program, arguments = parse_runner(words)
        if Path(words[0]).name == "uvx":
            return install_from_pip([package.replace("@", "==").removesuffix("==latest")], [*program, *arguments], say)
        found = install_from_npm(package, program, say)
        found.command += arguments
        return found
    if not words:
        raise UserError("no server is given: give a command, --url, --pip or --npm")
    return find_local_program(words)


def parse_runner(words: list[str]) -> tuple[str, list[str], list[str]]:
    """Return (package, its program if given separately, arguments) of `npx -y PACKAGE …` and `uvx --from PACKAGE PROGRAM …`."""
    package, rest = None, words[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-p", "--package", "--from") and rest:
            package = rest.pop(0)
        elif "=" in option and option.split("=")[0] in ("--package", "--from"):
            package = option.split("=", 1)[1]
        elif option not in ("-y", "--yes", "-q", "--quiet"):
            raise UserError(f"{words[0]} {option} is not supported: install the server with --pip or --npm")
    if not rest:
        raise UserError(f"{' '.join(words)} names no package")
    name = rest.pop(0)
    if package:
        return package, [name], rest
    if words[0].endswith("npx"):
        return name, [], rest
    # uvx runs the program with the package's name, without version and extras
    return name, [re.split(r"[@\[=<>~]", name)[0]], rest
