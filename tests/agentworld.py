"""A scripted endpoint that answers as Qwen-AgentWorld does: it reads the chat in the model's form and keeps no state of its own.

`python -m tests.fake_endpoint --respond tests.agentworld:respond`. Tools are those of the pack that `simia pack new` writes; a shell knows
`cd`, `pwd`, `echo` with redirection and `cat`. Any message out of form raises, and the client gets a status 500.
"""

from __future__ import annotations

import json
import re
from typing import Any

ACTION = re.compile(r"### Turn (\d+)\n(?:\*\*Current State:\*\*\n(.*)\n\n)?\*\*Action:\*\*\n```json\n(.*)\n```\Z", re.S)
MARKER = "**Environment Observation:**\n"


def respond(body: dict[str, Any]) -> str:
    system, *chat = body["messages"]
    assert system["role"] == "system"
    assert [each["role"] for each in chat] == ["user", "assistant"] * (len(chat) // 2) + ["user"]
    assert all(each["content"].startswith(MARKER) for each in chat[1::2])
    turns = [ACTION.match(each["content"]) for each in chat[::2]]
    assert all(turns), "a user message is not an action"
    assert [int(turn[1]) for turn in turns if turn] == list(range(1, len(turns) + 1))
    actions = [json.loads(turn[3]) for turn in turns if turn]
    thoughts = "<think>\nThe action is read; a draft: <predicted_observation>no</predicted_observation>\n</think>\n\n"
    if "**Terminal World Model**" in system["content"]:
        assert turns[0] is not None
        return thoughts + MARKER + play_shell(str(turns[0][2]), actions)
    assert "**Tool World Model**" in system["content"]
    return thoughts + MARKER + json.dumps(play_todos(actions), separators=(",", ":"))


def play_todos(actions: list[dict[str, Any]]) -> Any:
    """Play all calls from the start; the result of the last one."""
    todos: dict[str, Any] = {"T-1001": ["Water the plants", False], "T-1002": ["Call the dentist", True]}
    result: Any = None
    for action in actions:
        arguments = action["arguments"]
        if action["name"] == "list_todos":
            result = [
                {"todo_id": key, "text": text, "done": done}
                for key, (text, done) in todos.items()
                if not (arguments.get("open_only") and done)
            ]
        elif arguments["todo_id"] in todos:
            todos[arguments["todo_id"]][1] = True
            result = {"todo_id": arguments["todo_id"], "done": True}
        else:
            result = {"error": f"there is no {arguments['todo_id']}; list_todos gives the ids"}
    return result


def play_shell(prompt: str, actions: list[list[dict[str, Any]]]) -> str:
    """Play all keystrokes from the start; the screen of the last action."""
    folder, files, screen = "/", dict[str, str](), ""
    user = prompt.partition(":")[0]
    for action in actions:
        [typed] = action
        assert isinstance(typed["duration"], float)
        screen = f"{user}:{folder}# {typed['keystrokes'].removesuffix(chr(10))}"
        if not typed["keystrokes"].endswith("\n"):
            continue
        words = typed["keystrokes"].split()
        said = ""
        if words[0] == "cd":
            folder = words[1]
        elif words[0] == "pwd":
            said = folder
        elif words[0] == "echo":
            files[words[-1]] = " ".join(words[1:-2])
        elif words[0] == "cat":
            said = files.get(words[1], f"cat: {words[1]}: No such file or directory")
        screen = "\n".join(filter(None, [screen, said, f"{user}:{folder}#"]))
    return screen
