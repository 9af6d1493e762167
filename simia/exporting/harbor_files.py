"""The texts of a Harbor task's files, and a TOML writer for the few types of values in `task.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
DOCKERFILE = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
{source}RUN pip install --no-cache-dir {requirement}
{build}{copies}RUN mkdir -p /work /logs/artifacts /logs/verifier
WORKDIR /work
"""

SERVE_SCRIPT = """\
#!/bin/sh
# Serve the task by MCP over stdio. Each finished episode becomes a line of the file of episodes.
exec simia serve "$(dirname "$0")/pack" --mcp --unscored {options} --out {episodes}
"""

TEST_SCRIPT = """\
#!/bin/sh
# Play the recorded messages of the agent again and write the reward. Without a record the reward is 0.
mkdir -p /logs/verifier
exec simia pack score "$(dirname "$0")/pack" {episodes} {options} --out /logs/verifier/reward.txt
"""

SOLVE_SCRIPT = """\
#!/bin/sh
# Solve the task by the calls of the reference solution.
exec python3 "$(dirname "$0")/solve.py"
"""

SOLVE_PROGRAM = '''\
"""Make the calls of the reference solution, as an MCP client of the task's server, and give the final answer."""

import json
import subprocess
from pathlib import Path

SOLUTION = json.loads(Path(__file__).with_name("solution.json").read_text(encoding="utf-8"))
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "solution", "version": "1"}}


def main() -> None:
    server = subprocess.Popen(
        ["sh", "/opt/simia/serve.sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )

    def send(message: dict) -> None:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
        server.stdin.flush()

    def ask(number: int, method: str, params: dict) -> dict:
        send({"id": number, "method": method, "params": params})
        for line in server.stdout:
            reply = json.loads(line)
            if reply.get("id") == number:
                if "error" in reply:
                    raise SystemExit(f"{method}: {reply['error']}")
                return reply["result"]
        raise SystemExit("the server has ended")

    ask(0, "initialize", CLIENT)
    send({"method": "notifications/initialized"})
    calls = [*SOLUTION["calls"], {"name": "finish_episode", "arguments": {"answer": SOLUTION["answer"]}}]
    for number, call in enumerate(calls, 1):
        result = ask(number, "tools/call", call)
        print(call["name"], "".join(part.get("text", "") for part in result["content"])[:200])
    server.stdin.close()
    server.wait()


if __name__ == "__main__":
    main()
'''

INSTRUCTION = """\
{rules}# Task

{task}

# How to work

Use the tools of the MCP server `pack`. Nobody answers questions, and what the task asks for counts as confirmed.
When the task is done, or cannot be done, call `finish_episode` with your final answer to the user as `answer`. Only what you do by
these tools counts.
"""

README = """\
# {pack}: {count} for Harbor
{mark}
Each folder is a task. Run all of them with an agent of Harbor's, from the folder above this one:

    harbor run -p FOLDER -a oracle

`oracle` plays the reference solutions, which have reward 1. An agent that does nothing has reward 0.

An agent works in a container with the tools, the policy and the initial state. The verifier runs in a container of its own: it takes the
agent's calls and its answer from `/logs/artifacts/episodes.jsonl`, plays them again, and writes `/logs/verifier/reward.txt`.
The pack's code runs in a sandbox within the container, which needs user namespaces (Docker: `--security-opt seccomp=unconfined`), unless
the tasks were exported with `--trust-container`.
"""


def write_toml(tables: Mapping[str, Any], above: str = "") -> str:
    """Write TOML: values first, then tables, then lists of tables. A string is written as JSON, which TOML reads alike."""
    plain, nested = [], []
    for key, value in tables.items():
        word = key if BARE_KEY.fullmatch(key) else write_toml_value(key)
        name = f"{above}{word}"
        if isinstance(value, Mapping):
            only_tables = bool(value) and all(isinstance(each, Mapping) for each in value.values())
            header = "" if only_tables else f"\n[{name}]\n"
            nested.append(f"{header}{write_toml(value, f'{name}.')}")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            nested += [f"\n[[{name}]]\n{write_toml(row, f'{name}.')}" for row in value]
        else:
            plain.append(f"{word} = {write_toml_value(value)}\n")
    return "".join([*plain, *nested])


def write_toml_value(value: Any) -> str:
    """Write a text, a number, a boolean or a list of them."""
    if isinstance(value, list):
        return f"[{', '.join(map(write_toml_value, value))}]"
    # TOML has no escape for DEL other than \\u, which JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
