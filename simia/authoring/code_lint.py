"""Static lints of a pack's code: find calls that make an episode unrepeatable or use something outside of it. Nothing is run.

A lint is a hint to the author, not a protection: the sandbox isolates the code, and the verification gate plays each solution
twice and compares. Lints find common habits (`datetime.now()`, `random.choice`, `requests.get`) and report their line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from simia.authoring.findings import Fault, Finding
from simia.pack_files import read_bytes, summarize_error

MODULES = {
    **dict.fromkeys(
        ("socket", "ssl", "http", "urllib", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "asyncio"),
        Fault.NETWORK,
    ),
    **dict.fromkeys(("random", "secrets", "uuid"), Fault.RANDOMNESS),
    **dict.fromkeys(("subprocess", "multiprocessing", "threading", "signal", "ctypes", "concurrent"), Fault.PROCESSES),
    **dict.fromkeys(("shutil", "tempfile", "glob", "sqlite3"), Fault.FILES),
    "time": Fault.CLOCK,
}
CALLS = {
    "now": Fault.CLOCK, "utcnow": Fault.CLOCK, "today": Fault.CLOCK,
    "eval": Fault.DYNAMIC_CODE, "exec": Fault.DYNAMIC_CODE, "compile": Fault.DYNAMIC_CODE, "__import__": Fault.DYNAMIC_CODE,
    "open": Fault.FILES, "uuid4": Fault.RANDOMNESS, "urandom": Fault.RANDOMNESS, "input": Fault.FILES,
}  # fmt: skip
ALLOWED = frozenset({Fault.FILES, Fault.PROCESSES, Fault.NETWORK})
MOST_CODE = 4 << 20  # bytes of a file
CLOCKS = {"datetime", "date"}
ADVICE = {
    Fault.CLOCK: "use self.now",
    Fault.RANDOMNESS: "use self.random and self.new_id",
    Fault.NETWORK: "there is no network inside",
    Fault.FILES: "keep it in the state",
    Fault.PROCESSES: "there are no other processes inside",
    Fault.DYNAMIC_CODE: "write the code out",
    Fault.GLOBAL_STATE: "keep it in the state",
}


def lint_code(path: Path, *, isolation: str = "process") -> list[Finding]:
    """Findings for one file, in the order of its lines. With `isolation: sandbox` code may use files, programs and sockets."""
    allowed = ALLOWED if isolation == "sandbox" else frozenset()
    try:
        tree = ast.parse(read_bytes(path, MOST_CODE).decode("utf-8"))
        found = {(line, fault): what for line, fault, what in find_faults(tree) if fault not in allowed}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Finding(Fault.NOT_PYTHON, path.name, summarize_error(error))]
    return [
        Finding(fault, f"{path.name}, line {line}", f"{what}: {ADVICE[fault]}")
        for (line, fault), what in sorted(found.items(), key=lambda pair: pair[0][0])
    ]


def find_faults(tree: ast.Module) -> Iterator[tuple[int, Fault, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                fault = MODULES.get(alias.name.split(".")[0])
                if fault:
                    yield node.lineno, fault, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            fault = MODULES.get((node.module or "").split(".")[0])
            if fault:
                yield node.lineno, fault, f"from {node.module} import …"
        elif isinstance(node, ast.Call):
            yield from check_call(node)
        elif isinstance(node, ast.Global):
            yield node.lineno, Fault.GLOBAL_STATE, f"global {', '.join(node.names)}"


def check_call(node: ast.Call) -> Iterator[tuple[int, Fault, str]]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in CALLS and function.id not in ("now", "today"):
        yield node.lineno, CALLS[function.id], f"{function.id}(…)"
    elif isinstance(function, ast.Attribute) and CALLS.get(function.attr) is Fault.CLOCK:
        owner = function.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        if name in CLOCKS:
            yield node.lineno, Fault.CLOCK, f"{name}.{function.attr}()"
