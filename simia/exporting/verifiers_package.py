"""Write a pack as a Python package with an environment for verifiers: its tasks, its rewards and the loop that plays an episode.

    pip install ./DIR
    vf-eval simia-shop -m MODEL --client.base-url URL

The package holds the whole pack, since rewards need the solutions. The code that plays is `simia.trainers.verifiers`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from simia.exporting.harbor_files import write_toml
from simia.exporting.pack_copy import copy_pack
from simia.exporting.requirements import EVALUATION_ONLY, add_extra, find_wheel, refer_to_wheel
from simia.pack import Pack
from simia.task import Task

VERIFIERS = "verifiers>=0.4,<0.5"
MODULE = '''\
"""The pack {pack} as an environment of verifiers: the taskset, the environment and the harness that its loader finds.{mark}"""

from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from simia.trainers import verifiers as simia_verifiers

PACK = Path(__file__).with_name("pack")
EVALUATION_ONLY = {evaluation}


class Taskset(simia_verifiers.PackTaskset):
    """The pack's tasks."""

    pack = PACK


class Harness(simia_verifiers.PackHarness):
    """Plays one episode of the pack."""

    pack = PACK


class Environment(simia_verifiers.PackEnv):
    """One agent plays one episode of the pack."""


def load_environment(**arguments: Any) -> vf.Env:
    """Return the environment. Arguments: `backend`, `split`, `calls`, `settings`, `store`, as `--env.taskset.NAME` of vf-eval."""
    return vf.load_environment(vf.resolve_env_config({{"taskset": {{"id": "{name}", **arguments}}}}))


__all__ = ["Environment", "Harness", "Taskset", "load_environment"]
'''
README = """\
# {name}

The pack `{pack}` with {count} tasks, as an environment of [verifiers](https://github.com/PrimeIntellect-ai/verifiers). Licence: {licence}.
{mark}
    pip install .
    vf-eval {name} -m MODEL --client.base-url http://127.0.0.1:8000/v1 -n 5 --no-push

| argument | meaning |
|---|---|
| `--env.taskset.backend executable` | the pack's code answers calls, in a sandbox (the default where the pack has code) |
| `--env.taskset.backend simulated` | a model answers calls; `settings` names it |
| `--env.taskset.split train` | only tasks of this split |
| `--env.taskset.calls hermes` | calls as text, for servers without tool calls |
| `--env.taskset.settings '{{"user": "llm", "llm": {{"kind": "openai", "model": "gpt-5-mini"}}}}'` | any setting of simia's environment |

In Python: `{module}.load_environment(backend="executable")`.
"""


def write_verifiers_package(pack: Pack, tasks: Sequence[Task], out: Path, requirement: str) -> str:
    """Write the package into `out`, an existing folder.

    Args:
        pack: The pack.
        tasks: The tasks of it that the package has.
        out: The folder of the project.
        requirement: What pip installs as simia, or the path of a wheel, which is copied into the folder.

    Returns:
        The name of the environment.

    Raises:
        UserError: pip cannot read the requirement, the wheel does not exist, a link leads out of the pack, or writing fails.
    """
    wheel = find_wheel(requirement)
    needed = add_extra(requirement if wheel is None else refer_to_wheel(wheel), "sandbox")
    slug = re.sub(r"[^a-z0-9]+", "_", pack.name.lower()).strip("_") or "pack"
    module = f"simia_{slug}"
    name = module.replace("_", "-")
    mark = f"\n**The tasks are {EVALUATION_ONLY}.**\n" if pack.evaluation else ""
    about = f"The pack {pack.name} as an environment of verifiers" + (f", {EVALUATION_ONLY}" if pack.evaluation else "")
    project = {
        "project": {
            "name": name,
            "version": "0.1.0",
            "description": about,
            "readme": "README.md",
            "requires-python": ">=3.11",
            "keywords": ["verifiers", "simia", *(["evaluation-only"] if pack.evaluation else [])],
            "dependencies": [needed, VERIFIERS],
        },
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "tool": {"hatch": {"build": {"targets": {"wheel": {"packages": [module]}}}, "metadata": {"allow-direct-references": True}}},
    }  # fmt: skip
    if wheel is not None:
        shutil.copy(wheel, out)
    (out / module).mkdir()
    copy_pack(pack, out / module / "pack", tasks)
    told = f" It is {EVALUATION_ONLY}." if pack.evaluation else ""
    text = MODULE.format(pack=slug, name=name, mark=told, evaluation=pack.evaluation)
    (out / module / "__init__.py").write_text(text, "utf-8")
    (out / "pyproject.toml").write_text(write_toml(project).lstrip(), "utf-8")
    readme = README.format(name=name, pack=pack.name, module=module, count=len(tasks), licence=pack.licence, mark=mark)
    (out / "README.md").write_text(readme, "utf-8")
    return name
