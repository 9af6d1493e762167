"""Process 1 of a sandbox that an ordinary user starts: bubblewrap's own, of the same user as the programs of the agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from simia.sandbox.bubblewrap import BubblewrapSandbox, PrivateFolder, list_system_binds
from simia.sandbox.capabilities import Isolation, find_bubblewrap, try_sandbox
from simia.sandbox.inside.confine import FILTER
from simia.sandbox.supervisor import list_descendants
from simia.sandbox.zygote import open_syscall_filter

# Memory of processes that can be opened for writing, threads included; the shell's own shows that this would tell.
OPEN_MEMORY = """
for memory in /proc/[0-9]*/task/[0-9]*/mem; do (: 3<>$memory) 2>/dev/null && echo $memory; done
echo self $$
(: > /proc/1/file) 2>/dev/null && echo written
echo first: $(ls /proc/1 | wc -l)
exec sleep 60
"""


def ordinary_user() -> list[str]:
    """The words before a command that make it an ordinary user's: none when the tests are run by one."""
    if os.getuid():
        return []
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]


@pytest.mark.attack("write code into process 1 of the sandbox", where="sandbox")
def test_process_1_is_confined_and_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    bwrap = find_bubblewrap()
    assert bwrap is not None
    jail = BubblewrapSandbox(
        Isolation(True, bwrap, "", outer=False), list_system_binds(bwrap), room=PrivateFolder("/scratch", 1 << 20)
    )
    plain = BubblewrapSandbox.command
    monkeypatch.setattr(BubblewrapSandbox, "command", lambda *given: [*ordinary_user(), *plain(*given)])
    if try_sandbox(jail):
        pytest.skip("an ordinary user gets no /proc in a sandbox on this machine")
    program = open_syscall_filter(alone=True, unix=False)
    process = subprocess.Popen(
        jail.command(["/bin/sh", "-c", OPEN_MEMORY], program),
        pass_fds=[program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    os.close(program)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("first:")):
            lines.append(process.stdout.readline().strip())
        own = next(line.split()[1] for line in lines if line.startswith("self"))
        assert lines[-1] == "first: 0"
        assert "written" not in lines
        opened = [line.split("/")[2] for line in lines if line.startswith("/proc/")]
        assert own in opened
        assert "1" not in opened
        inside = [
            status for pid in list_descendants(process.pid) if len((status := status_of(pid))["NSpid"].split()) > 1
        ]
        assert "1" in {status["NSpid"].split()[-1] for status in inside}
        assert {status["Seccomp"] for status in inside} == {str(FILTER)}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def status_of(pid: int) -> dict[str, str]:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (row.partition(":") for row in rows)}
