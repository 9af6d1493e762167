"""The app shell: bash in the episode's sandbox. A command that starts with `cd` changes the folder for later commands."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
from typing import Any

from .programs import SECONDS, run_program
from .testbed import TESTBED, Testbed, register_action

SCRIPT = "trap 'pwd >&\"$SIMIA_PWD\"' EXIT\n"
MOVE = re.compile(r"cd(?:\s+(\S+))?\s*")
PLAIN = re.compile(r"[\w./~-]+")


@register_action("shell.command", writes=True)
def run_shell_command(testbed: Testbed, command: Any) -> str:
    """Run a shell command and show what it prints."""
    line = " ".join(map(str, command)) if isinstance(command, list) else command
    start = testbed.locate(testbed.folder) if testbed.folder.startswith(TESTBED) else testbed.folder
    if not os.path.isdir(start):
        testbed.memory["folder"], start = TESTBED, testbed.root
    with tempfile.TemporaryFile() as place:
        kept = place.fileno()
        code, output = run_program(["bash", "-c", f"{SCRIPT}{line}"], str(start), kept=kept, SIMIA_PWD=str(kept))
        place.seek(0)
        ended = place.read(4096).decode(errors="replace").strip()
    if line.lstrip().startswith("cd") and ended:
        testbed.memory["folder"] = make_testbed_path(testbed, ended)
    if code is None:
        return f"{output}\nThe command was stopped: it took more than {SECONDS:g} seconds."
    if output.strip():
        return output
    shown = line
    moved = MOVE.fullmatch(line.strip())
    if moved and PLAIN.fullmatch(moved[1] or "/"):
        shown = f"cd {testbed.folder}"
    if code:
        return f"The command failed with exit code {code} and no output: {shown}"
    return f"Successfully executed command: {shown}. The output was [{output}]."


def make_testbed_path(testbed: Testbed, folder: str) -> str:
    """Return the folder as a path of OfficeBench, below `TESTBED`."""
    root = os.path.realpath(testbed.root)
    real = os.path.realpath(folder)
    if real == root or real.startswith(f"{root}/"):
        return posixpath.normpath(f"{TESTBED}/{real[len(root) :].lstrip('/')}")
    return folder
