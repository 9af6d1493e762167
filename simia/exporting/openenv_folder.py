"""Write a pack as an OpenEnv environment: a manifest, a server, an image, and a client.

    python -m server.app --port 8000          # in the folder
    docker build -f server/Dockerfile .

The server is simia's. The folder holds the whole pack, since rewards need the solutions; clients see no solutions.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.authoring.pack_draft import write_yaml
from simia.exporting.harbor_files import write_toml
from simia.exporting.pack_copy import copy_pack
from simia.exporting.requirements import BASE_IMAGE, EVALUATION_ONLY, add_extra, find_wheel, refer_to_wheel
from simia.pack import Pack
from simia.task import Task

OPENENV = "openenv>=0.10,<0.11"
PORT = 8000
APP = '''\
"""The server of the pack {pack}, by simia.{mark}

    python -m server.app --port 8000                     # options are those of `simia serve --openenv`
    uvicorn server.app:app                               # settings by variables: SIMIA_SETTINGS, SIMIA_TOKEN, SIMIA_OUT
"""

import sys
from pathlib import Path

from simia.cli import main as run_simia
from simia.serve.openenv_app import PackApplication

PACK = Path(__file__).resolve().parents[1] / "pack"
app = PackApplication(PACK)


def main() -> None:
    """Serve the pack until a signal comes."""
    sys.argv = ["simia", "serve", str(PACK), "--openenv", *sys.argv[1:]]
    run_simia()


if __name__ == "__main__":
    main()
'''
CLIENT = '''\
"""A client of the environment. `python client.py URL [TASK]` plays an episode in which the agent does nothing.

A message is what a model writes: words to the user, and calls as <tool_call>{{"name": …, "arguments": …}}</tool_call>. A client that reads
calls itself gives them as `calls`. The reward comes with `done`.
"""

import os
import sys

try:
    from openenv.core import GenericEnvClient
except ModuleNotFoundError as error:
    raise ImportError(f"this client needs the package {{error.name}}: pip install '{openenv}'") from None


def connect(url: str) -> GenericEnvClient:
    """Return a client of the server at this address, with the token in SIMIA_TOKEN if there is one."""
    token = os.environ.get("SIMIA_TOKEN")
    headers = {{"headers": {{"Authorization": f"Bearer {{token}}"}}}} if token else {{}}
    return GenericEnvClient(base_url=url, **headers)


def main() -> None:
    """Play an episode and print what comes of it."""
    with connect(sys.argv[1]).sync() as env:
        result = env.reset(task=sys.argv[2] if len(sys.argv) > 2 else "{task}")
        print(result.observation["text"][-500:])
        while not result.done:
            result = env.step({{"message": "I am sorry, I cannot help with that."}})
        print(result.observation["end"], result.reward)


if __name__ == "__main__":
    main()
'''
DOCKERFILE = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
{source}RUN pip install --no-cache-dir {requirement}
{build}COPY . /app/env
RUN mkdir -p /app/data
WORKDIR /app/env
EXPOSE {port}
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/health')"]
ENTRYPOINT ["python", "-m", "server.app", "--host", "0.0.0.0", "--port", "{port}", "--out", "/app/data/trajectories.jsonl"]
"""
README = """\
# {title}
{mark}
The pack `{pack}` with {count} tasks, as an environment of [OpenEnv](https://github.com/huggingface/OpenEnv), served by simia. Licence: {licence}.

    pip install {requirement}
    python -m server.app --port 8000
    pip install '{openenv}' && python client.py http://127.0.0.1:8000

In a container:

    docker build -t {name} -f server/Dockerfile .
    docker run --security-opt seccomp=unconfined -p 8000:8000 -e SIMIA_TOKEN=$(openssl rand -hex 32) {name}

The pack's code runs in a sandbox, which needs user namespaces in the container. A server that others can reach needs a token, unless
`--no-token` follows the image's name. Everything after the name is an option of `simia serve --openenv`, such as `--set backend=simulated`.
"""


def write_openenv_folder(pack: Pack, tasks: Sequence[Task], out: Path, requirement: str, base: str = BASE_IMAGE) -> str:
    """Write the environment into `out`, an existing folder.

    Args:
        pack: The pack.
        tasks: The tasks of it that the environment has.
        out: The folder of the environment.
        requirement: What pip installs as simia, or the path of a wheel, which is copied into the folder.
        base: Base image with Python 3.11 or newer on Debian.

    Returns:
        The name of the environment.

    Raises:
        UserError: pip cannot read the requirement, the wheel does not exist, a link leads out of the pack, or writing fails.
    """
    wheel = find_wheel(requirement)
    project, here, in_image = (
        (requirement,) * 3 if wheel is None else (refer_to_wheel(wheel), f"./{wheel.name}", f"/tmp/{wheel.name}")
    )
    project, here, in_image = (add_extra(add_extra(each, "sandbox"), "serve") for each in (project, here, in_image))
    if wheel is not None:
        shutil.copy(wheel, out)
    name = re.sub(r"[^a-z0-9]+", "_", pack.name.lower()).strip("_") or "pack"
    told = f" It is {EVALUATION_ONLY}." if pack.evaluation else ""
    mark = f"\n**The tasks are {EVALUATION_ONLY}.**\n" if pack.evaluation else ""
    copy_pack(pack, out / "pack", tasks)
    (out / "server").mkdir()
    how = pack.executable
    build = f"RUN python -m simia.venvs {shlex.quote(how.python)}\n" if how and how.python else ""
    texts = {
        "__init__.py": f'"""The pack {name} as an environment of OpenEnv.{told}"""\n',
        "client.py": CLIENT.format(openenv=OPENENV, task=tasks[0].id.replace("\\", "\\\\").replace('"', '\\"')),
        "openenv.yaml": write_yaml(make_manifest(pack, tasks, name)),
        "pyproject.toml": write_toml(make_project(pack, name, project)).lstrip(),
        "server/__init__.py": '"""The server."""\n',
        "server/app.py": APP.format(pack=name, mark=told),
        "server/Dockerfile": DOCKERFILE.format(
            base=base,
            source="" if wheel is None else f"COPY {wheel.name} /tmp/\n",
            requirement=shlex.quote(in_image),
            build=build,
            port=PORT,
        ),
        "README.md": README.format(
            title=pack.name, pack=pack.name, name=name.replace("_", "-"), count=len(tasks), licence=pack.licence, mark=mark,
            requirement=shlex.quote(here), openenv=OPENENV,
        ),
    }  # fmt: skip
    for path, text in texts.items():
        (out / path).write_text(text, "utf-8")
    return name


def make_manifest(pack: Pack, tasks: Sequence[Task], name: str) -> dict[str, Any]:
    """Return the content of `openenv.yaml`, with the block that OpenEnv's validation reads."""
    mark = {"evaluation_only": True, "use": EVALUATION_ONLY} if pack.evaluation else {}
    return {
        "spec_version": 1,
        "name": name,
        "version": "0.1.0",
        "type": "space",
        "runtime": "fastapi",
        "app": "server.app:app",
        "port": PORT,
        "description": " ".join(pack.description.split()) or f"The pack {pack.name}, served by simia",
        **mark,
        "validation": {
            "reward": {"range": [0.0, 1.0], "oracle_tolerance": 0.0, "floor_margin": 1.0},
            "resources": {"cpu": 1.0, "memory_mb": 2048, "disk_mb": 2048, "episode_timeout_s": 600.0},
            "capabilities": {
                "verifier": {"kind": "reward_channel"},
                "task_api": True,
                "declared_task_count": dict(sorted(Counter(task.split for task in tasks).items())),
            },
            "types": {"tags": ["tool-use", *(["evaluation-only"] if pack.evaluation else [])]},
        },
    }


def make_project(pack: Pack, name: str, requirement: str) -> dict[str, Any]:
    """Return the content of `pyproject.toml`: the folder is the package `simia_NAME_env`."""
    module = f"simia_{name}_env"
    parts = ["__init__.py", "client.py", "openenv.yaml", "pack", "server"]
    wheel = {"only-include": parts, "sources": {"": module}}
    about = f"The pack {pack.name} as an environment of OpenEnv"
    return {
        "project": {
            "name": f"openenv-{name.replace('_', '-')}",
            "version": "0.1.0",
            "description": about + (f", {EVALUATION_ONLY}" if pack.evaluation else ""),
            "readme": "README.md",
            "requires-python": ">=3.11",
            "dependencies": [requirement, OPENENV],
            "scripts": {"server": f"{module}.server.app:main"},
        },
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "tool": {"hatch": {"build": {"targets": {"wheel": wheel}}, "metadata": {"allow-direct-references": True}}},
    }
