"""Checks of a shell run over what the agent wrote: its programs, modules and settings must not take the system's place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.importers.agentbench import import_problems
from simia.trajectory import ToolCall
from tests.sandbox.making import ANY, TASK, ask, make_pack, opened

# Each check fails by itself: the file that it looks for is never made. What the agent writes tries to make it succeed.
CHECKS = {
    "bash": "grep -q done /root/never && test -f /root/never && [ \"$(cat /root/never | wc -l)\" = 1 ]",
    "sh": {"language": "sh", "code": "grep -q done /root/never"},
    "python": {"language": "python", "code": "import json, os, sys\nsys.exit(0 if os.path.exists('/root/never') else 1)"},
    "python by its name": "python3 -c 'import json, sys; sys.exit(1)'",
    "own command": "mycommand > /dev/null 2>&1; grep -q done /root/never",
}  # fmt: skip
RELEVANT = {
    "programs": ("bash", "python by its name"),
    "modules": ("python", "python by its name"),
    "settings of shells": ("bash", "sh"),
    "the loader": ("bash",),
    "the system's folders": ("bash",),
    "a program that the check runs": ("own command",),
}
FOOL = "#!/bin/bash\\nexit 0\\n"
ATTACKS = {
    "programs": (
        "for d in /usr/local/bin /usr/local/sbin /root/bin; do mkdir -p $d; for p in bash sh python3 grep test cat wc ls env; do"
        f" printf '{FOOL}' > $d/$p; chmod +x $d/$p; done; done"
    ),
    "modules": (
        "for v in 3 3.9 3.10 3.11 3.12 3.13; do for d in /root/.local/lib/python$v/site-packages /etc/python$v"
        " /usr/local/lib/python$v/dist-packages /usr/local/lib/python$v/site-packages; do mkdir -p $d 2> /dev/null;"
        " for m in usercustomize sitecustomize json os; do echo 'import os; os._exit(0)' > $d/$m.py; done 2> /dev/null;"
        " echo 'import os; os._exit(0)' > $d/x.pth; done 2> /dev/null; done;"
        " for m in usercustomize sitecustomize json; do echo 'import os; os._exit(0)' > /$m.py; cp /$m.py /root; done"
    ),
    "settings of shells": (
        "for f in .bashrc .bash_profile .profile .bash_login .bash_logout; do echo 'exit 0' > /root/$f; done; echo 'exit 0' > /etc/profile;"
        " echo 'exit 0' > /etc/bash.bashrc; export BASH_ENV=/root/.bashrc ENV=/root/.bashrc PYTHONPATH=/root PATH=/root/bin:$PATH;"
        " test() { return 0; }; export -f test"
    ),
    "the loader": (
        "rm -f /bin /lib /lib64 /sbin; mv /bin /b; mv /lib64 /l; mkdir -p /bin /lib64; cp /usr/bin/true /bin/bash; cp /usr/bin/true /lib64/ld-linux-x86-64.so.2;"
        " echo /root/evil.so > /etc/ld.so.preload; mv /etc /e; mkdir /etc; echo /root/evil.so > /etc/ld.so.preload; true"
    ),
    "the system's folders": (
        "mv /usr /u; mkdir -p /usr/bin; cp /u/bin/true /usr/bin/bash; mv /usr/local /usr/l; mv /usr/local/bin /usr/local/b; true"
    ),
    "a program that the check runs": (
        "printf '#!/usr/bin/python3\\nimport os\\nfor a, b in ((\"/usr\", \"/u\"), (\"/v\", \"/usr\")):\\n    os.rename(a, b)\\n' > /usr/local/bin/mycommand;"
        " chmod +x /usr/local/bin/mycommand; mkdir -p /v/bin; ln -s /u/lib /v/lib; ln -s /u/lib64 /v/lib64; cp /usr/bin/true /v/bin/grep"
    ),
}  # fmt: skip


@pytest.mark.attack("write programs, modules or settings that the checks would run", where="sandbox")
@pytest.mark.parametrize("name", ATTACKS)
async def test_what_the_agent_wrote_does_not_pass_a_check(tmp_path: Path, name: str) -> None:
    problems: list[dict[str, Any]] = [
        {"description": each, "evaluation": {"check": [CHECKS[each]]}} for each in RELEVANT[name]
    ]
    (tmp_path / "problems.json").write_text(json.dumps(problems))
    folder = import_problems([tmp_path / "problems.json"], tmp_path / "pack", train=True)
    async with await open_environment(str(folder), user="none") as environment:
        for task in environment.tasks:
            world = await environment.backend.open(task, seed=0, group=None)
            calls = [
                ToolCall(id="", name="bash_action", arguments={"script": ATTACKS[name]}),
                ToolCall(id="", name="finish_action", arguments={}),
            ]
            results = await world.call(calls)
            assert not [each for each in results if each.error], results
            checks = (await world.evidence())["checks"]
            assert checks
            assert True not in checks.values(), (task.instruction, checks)
            await world.close()


async def test_a_check_still_runs_the_commands_that_the_agent_installed(tmp_path: Path) -> None:
    check = "mycommand | grep -qx done && python3 -c 'import json' && bash -c 'exit 0'"
    problems = [{"description": "x", "evaluation": {"check": [check, {"language": "python", "code": "print(1)"}]}}]
    (tmp_path / "problems.json").write_text(json.dumps(problems))
    folder = import_problems([tmp_path / "problems.json"], tmp_path / "pack", train=True)
    async with await open_environment(str(folder), user="none") as environment:
        world = await environment.backend.open(environment.tasks[0], seed=0, group=None)
        script = "printf '#!/bin/bash\\necho done\\n' > /usr/local/bin/mycommand; chmod +x /usr/local/bin/mycommand"
        await world.call([ToolCall(id="", name="bash_action", arguments={"script": script})])
        await world.call([ToolCall(id="", name="finish_action", arguments={})])
        assert set((await world.evidence())["checks"].values()) == {True}
        await world.close()


LATE = """
import subprocess
from simia.kit import FileTools, system_program, write

class Room(FileTools):
    @write
    def program(self, code):
        done = subprocess.run(["/bin/bash", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode(errors="replace")[-4000:]

    @write
    def late(self):
        import wave  # a module of the interpreter that nothing has imported before
        return [wave.__file__, system_program("bash"), subprocess.run(["/bin/bash", "-c", "exit 3"]).returncode]
"""


@pytest.mark.attack("replace the interpreter that the worker runs on", where="sandbox")
async def test_no_folder_above_the_system_can_be_replaced(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "room", LATE, {"program": ANY, "late": ANY}, object="Room", isolation="sandbox")
    assert pack.executable is not None
    pack.executable.root = "/"
    async with opened(pack) as backend:
        honest = (await ask(await backend.open(TASK), "late")).data
        world = await backend.open(TASK)
        library = Path(honest[0]).parent
        places = [str(each) for each in [library, *library.parents][:-1]]
        tries = f"""import os
for place in {json.dumps(places[::-1])}:
    try:
        os.rename(place, "/moved")
        os.makedirs("{library}")
        open("{library}/wave.py", "w").write("import os; os._exit(0)")
        print("MOVED", place)
    except OSError as error:
        print(error)
"""
        assert "MOVED" not in (await ask(world, "program", code=f"python3 -c '{tries}'")).content
        assert (await ask(world, "late")).data == honest
        assert honest[1] in ("/usr/bin/bash", "/bin/bash")
        assert honest[2] == 3
        await world.close()
