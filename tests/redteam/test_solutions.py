"""Solutions, tests, the user's instructions, a synthesis's record and expected results are no files of a pack's sandbox; the checks file is one for checks alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from simia.pack import Pack
from simia.pack_files import RECORD
from simia.reward_spec import RewardSpec
from tests.sandbox.making import ANY, HEAD, TASK, ask, make_pack, opened

SECRET = "the solution of task seven"
TOOLS = """
import os
class State(BaseModel):
    pass
class World(Tools[State]):
    State = State
    @read
    def look(self) -> list[str]:
        found = []
        for folder, _, names in os.walk("/pack"):
            for name in names:
                path = os.path.join(folder, name)
                found.append(path + (" SECRET" if "of task " "seven" in open(path).read() else ""))
        return sorted(found)
"""
FILES = """
import os
from pathlib import Path
from simia.kit import FileTools, read
class World(FileTools):
    @read
    def look(self):
        names = [str(path) for path in Path("/pack").rglob("*") if path.is_file()]
        return sorted(name + (" SECRET" if "of task " "seven" in open(name).read() else "") for name in names)
"""
CHECKS = f"""
# {SECRET}
import os
def reads_its_own_file(final, initial):
    return os.path.exists("/pack/checks.py") and open("/pack/expected/a.txt").read() == {SECRET!r}
def finds_no_task(final, initial):
    return not any(os.path.exists(f"/pack/{{name}}.jsonl") for name in ("tasks", "tests", "seeds"))
"""


def pack_with_solutions(folder: Path, isolation: str) -> Pack:
    code = FILES if isolation == "sandbox" else HEAD + TOOLS
    make_pack(folder, code, {"look": ANY}, isolation=isolation, checks=CHECKS)
    for name in ("tasks", "tests", "seeds"):
        (folder / f"{name}.jsonl").write_text("")
    (folder / "user.md").write_text("")
    (folder / "expected").mkdir()
    (folder / "expected" / "a.txt").write_text(SECRET)
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    head |= {name: f"{name}.jsonl" for name in ("tasks", "tests", "seeds")} | {"instructions": "user.md"}
    head["executable"]["hidden"] = ["expected"]
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    pack = Pack.load(folder)
    for name in ("tasks", "tests", "seeds"):  # only now: what they hold is no row
        (folder / f"{name}.jsonl").write_text(SECRET)
    for name in ("user.md", RECORD):
        (folder / name).write_text(SECRET)
    return pack


@pytest.mark.attack("read solutions, tests and expected results in the pack")
@pytest.mark.parametrize("isolation", ["shared", "process", "sandbox"])
async def test_solutions_are_not_in_the_sandbox(tmp_path: Path, isolation: str) -> None:
    parts = [{"kind": "checklist", "functions": ["reads_its_own_file", "finds_no_task"]}]
    task = TASK.model_copy(update={"reward": RewardSpec.model_validate({"parts": parts})})
    async with opened(pack_with_solutions(tmp_path / "p", isolation)) as backend:
        world = await backend.open(task)
        assert (await ask(world, "look")).data == ["/pack/pack.yaml", "/pack/tools.json", "/pack/tools.py"]
        evidence = await world.evidence()
        assert evidence["checks"] == evidence["at_reset"] == {"reads_its_own_file": True, "finds_no_task": True}
        await world.close()
