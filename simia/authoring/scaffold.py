"""Write a first pack for the user to change: small, complete and valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError

PACK = """\
format: 2
name: {name}
description: A list of things to do.
licence: unknown
policy: policy.md
tools: tools.json
state: state.json
tasks: tasks.jsonl
tests: tests.jsonl
user: scripted
schema:
  tables:
    todos:
      columns:
        text: {{required: true, unique: true, values: {{type: string, minLength: 1}}}}
        done: {{values: {{type: boolean}}}}
        added: {{match: exempt}}       # made by the tool's clock
executable:
  code: tools.py
  object: Todos
  isolation: process
  clock: 2025-05-14T10:30:00
"""
POLICY = """\
You keep a list of things to do for one person. Look up a thing before you change it. Say what you did in one sentence.
"""
CODE = '''\
"""A list of things to do. One method a tool; errors that the agent can act on are `ToolError`s."""

from pydantic import BaseModel

from simia.kit import ToolError, Tools, read, write


class Todo(BaseModel):
    text: str
    done: bool = False
    added: str = ""


class State(BaseModel):
    todos: dict[str, Todo] = {}


class Todos(Tools[State]):
    State = State

    @read
    def list_todos(self, open_only: bool = False) -> list[dict]:
        return [
            {"todo_id": key, "text": todo.text, "done": todo.done}
            for key, todo in self.state.todos.items()
            if not (open_only and todo.done)
        ]

    @write
    def add_todo(self, text: str) -> dict:
        if any(todo.text == text for todo in self.state.todos.values()):
            raise ToolError("that is on the list already")
        todo_id = self.new_id("T-", 4, taken=self.state.todos)
        self.state.todos[todo_id] = Todo(text=text, added=self.now.isoformat())
        return {"todo_id": todo_id}

    @write
    def finish_todo(self, todo_id: str) -> dict:
        if todo_id not in self.state.todos:
            raise ToolError(f"there is no {todo_id}; list_todos gives the ids")
        self.state.todos[todo_id].done = True
        return {"todo_id": todo_id, "done": True}
'''
TEXT = {"type": "string", "description": "What is to be done", "minLength": 1}
TOOLS = [
    {
        "name": "list_todos",
        "description": "List what is to be done",
        "reads": ["todos"],
        "writes": [],
        "parameters": {
            "type": "object",
            "properties": {"open_only": {"type": "boolean", "description": "Only what is not done yet"}},
            "additionalProperties": False,
        },
    },
    {
        "name": "add_todo",
        "description": "Put something on the list",
        "reads": ["todos"],
        "writes": ["todos"],
        "parameters": {
            "type": "object",
            "properties": {"text": TEXT},
            "required": ["text"],
            "additionalProperties": False,
        },
    },
    {
        "name": "finish_todo",
        "description": "Mark something as done",
        "reads": ["todos"],
        "writes": ["todos"],
        "parameters": {
            "type": "object",
            "properties": {"todo_id": {"type": "string", "description": "Its id", "pattern": "^T-[0-9]{4}$"}},
            "required": ["todo_id"],
            "additionalProperties": False,
        },
    },
]
STATE = {"todos": {"T-1001": {"text": "Water the plants"}, "T-1002": {"text": "Call the dentist", "done": True}}}
TASKS: list[dict[str, Any]] = [
    {
        "id": "todo-1",
        "instruction": "You have watered the plants and want that marked on your list.",
        "opening": "I have watered the plants!",
        "script": [
            {"user": "I have watered the plants!"},
            {"calls": [{"name": "list_todos", "arguments": {"open_only": True}}]},
            {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
            {"agent": "I have marked 'Water the plants' as done."},
        ],
    },
    {
        "id": "todo-2",
        "split": "test",
        "instruction": "You want to know what is still open on your list.",
        "opening": "What is left for me to do?",
        "script": [
            {"user": "What is left for me to do?"},
            {"calls": [{"name": "list_todos", "arguments": {"open_only": True}}]},
            {"agent": "One thing: Water the plants."},
        ],
        "reward": {"parts": [{"kind": "state"}, {"kind": "answer", "expect": ["water the plants"]}]},
    },
]
TESTS: list[dict[str, Any]] = [
    {
        "name": "list open ones",
        "call": {"name": "list_todos", "arguments": {"open_only": True}},
        "expect": {"result": [{"todo_id": "T-1001", "text": "Water the plants", "done": False}]},
    },
    {
        "name": "add",
        "call": {"name": "add_todo", "arguments": {"text": "Buy bread"}},
        "expect": {"changes": {"todos.*": {"text": "Buy bread", "done": False}}},
    },
    {
        "name": "add twice",
        "call": {"name": "add_todo", "arguments": {"text": "Water the plants"}},
        "expect": {"outcome": "refusal", "error": "already"},
    },
    {
        "name": "finish",
        "call": {"name": "finish_todo", "arguments": {"todo_id": "T-1001"}},
        "expect": {"changes": {"todos.T-1001.done": True}},
    },
    {
        "name": "finish what is not there",
        "call": {"name": "finish_todo", "arguments": {"todo_id": "T-9999"}},
        "expect": {"outcome": "refusal", "error": "there is no T-9999"},
    },
]


def scaffold_pack(folder: Path) -> None:
    """Write the pack. Raises `UserError` if `folder` is a file or is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty: choose another folder")
    name = folder.resolve().name
    lines: dict[str, list[dict[str, Any]]] = {"tasks.jsonl": TASKS, "tests.jsonl": TESTS}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pack.yaml").write_text(PACK.format(name=name), encoding="utf-8")
        (folder / "policy.md").write_text(POLICY, encoding="utf-8")
        (folder / "tools.py").write_text(CODE, encoding="utf-8")
        (folder / "tools.json").write_bytes(orjson.dumps(TOOLS, option=orjson.OPT_INDENT_2) + b"\n")
        (folder / "state.json").write_bytes(orjson.dumps(STATE, option=orjson.OPT_INDENT_2) + b"\n")
        for file, rows in lines.items():
            (folder / file).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
