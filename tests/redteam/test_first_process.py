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
for memory in /proc/[0-9]*/task/[0-9]*/mem /proc/self/fd/9/[0-9]*/task/[0-9]*/mem; do (: 3<>$memory) 2>/dev/null && echo $memory; done
echo self $$
(: > /proc/1/file) 2>/dev/null && echo written
echo searched: $(find /proc -name nothing 2>&1 | grep -c denied)
echo first: $(ls /proc/1 | wc -l)
exec sleep 60
"""


def ordinary_user() -> list[str]:
    """The words before a command that make it an ordinary user's: none when the tests are run by one."""
    if os.getuid():
        return []
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]


@pytest.mark.attack("write code into process 1 of the sandbox", where="sandbox")
@pytest.mark.parametrize("hides", [False, True])
def test_process_1_is_confined_and_out_of_reach(monkeypatch: pytest.MonkeyPatch, hides: bool) -> None:
    """It has the programs' system call filter, or belongs to a user namespace above theirs and is not in their /proc."""
    bwrap = find_bubblewrap()
    assert bwrap is not None
    isolation = Isolation(True, bwrap, "", outer=False, hides=hides)
    jail = BubblewrapSandbox(isolation, list_system_binds(bwrap), room=PrivateFolder("/scratch", 1 << 20))
    plain = BubblewrapSandbox.command
    monkeypatch.setattr(BubblewrapSandbox, "command", lambda *given: [*ordinary_user(), *plain(*given)])
    if try_sandbox(jail):
        pytest.skip("an ordinary user gets no such /proc in a sandbox on this machine")
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
        opened = [line.split("/task/")[0].rpartition("/")[2] for line in lines if line.startswith("/proc/")]
        assert own in opened
        assert "1" not in opened
        inside = [
            status for pid in list_descendants(process.pid) if len((status := status_of(pid))["NSpid"].split()) > 1
        ]
        assert "1" in {status["NSpid"].split()[-1] for status in inside}
        filtered = {status["Pid"] for status in inside if status["Seccomp"] == str(FILTER)}
        programs = [pid for pid in map(int, filtered) if namespace_of(pid) == namespace_of(max(map(int, filtered)))]
        if hides:
            assert "searched: 0" in lines
            assert own in {status["NSpid"].split()[-1] for status in inside if int(status["Pid"]) in programs}
            unfiltered = [int(status["Pid"]) for status in inside if status["Pid"] not in filtered]
            assert not {namespace_of(pid) for pid in unfiltered} & {namespace_of(pid) for pid in programs}
        else:
            assert len(filtered) == len(inside)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/user")


def status_of(pid: int) -> dict[str, str]:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (row.partition(":") for row in rows)}
