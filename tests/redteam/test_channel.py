"""Programs that the agent starts in a sandbox must not answer in the worker's place: an answer can be a state, so a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from tests.sandbox.making import ANY, TASK, ask, make_pack, opened

# Writes an answer for every request number on every descriptor that it has, and says which of these are sockets.
FORGER = """
import json, os, stat, struct
found = []
for number in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            found.append(number)
            for n in range(1, 40):
                body = json.dumps([[n, [0, "forged"]]]).encode()
                os.write(number, struct.pack("!I", len(body)) + body)
    except OSError:
        pass
open("/tmp/found", "w").write(json.dumps(found))
"""

CODE = f'''
import json, multiprocessing, os, subprocess, time
from simia.kit import FileTools, write

FORGER = {FORGER!r}

def run_forger():
    exec(FORGER, {{}})

class Room(FileTools):
    @write
    def system(self):
        """Start a program that inherits what is inheritable."""
        script = self.root / "forger.py"
        script.write_text(FORGER)
        os.system(f"/usr/bin/env python3 {{script}}")
        return open("/tmp/found").read()

    @write
    def grandchild(self):
        """Leave a program running that answers later requests."""
        script = self.root / "forger.py"
        script.write_text("import time\\nfor _ in range(3):\\n    time.sleep(0.1)\\n    exec(open(__file__[:-3] + '.txt').read())")
        (self.root / "forger.txt").write_text(FORGER)
        subprocess.Popen(["/usr/bin/env", "python3", str(script)], close_fds=False, start_new_session=True)
        return "[]"

    @write
    def fork(self):
        """Run it in a fork of the worker that starts no program."""
        pid = os.fork()
        if pid == 0:
            run_forger()
            os._exit(0)
        os.waitpid(pid, 0)
        return open("/tmp/found").read()

    @write
    def multiprocess(self):
        child = multiprocessing.get_context("fork").Process(target=run_forger)
        child.start()
        child.join()
        return open("/tmp/found").read()

    @write
    def note(self):
        time.sleep(0.5)
        return "honest"
'''

WAYS = ("system", "grandchild", "fork", "multiprocess")


def channel_pack(folder: Path) -> Pack:
    return make_pack(folder, CODE, dict.fromkeys((*WAYS, "note"), ANY), object="Room", isolation="sandbox")


@pytest.mark.attack("answer in the worker's place from a child process", where="sandbox")
@pytest.mark.parametrize("way", WAYS)
async def test_child_process_has_no_channel_to_the_parent(tmp_path: Path, way: str) -> None:
    async with opened(channel_pack(tmp_path / "room"), limits=WorkerLimits(wall=20, folder=8 * MB)) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, way)).content == "[]"
        assert (await ask(world, "note")).content == "honest"
        state = await world.state()
        assert set(state) == {"files", "memory"}
        await world.close()
