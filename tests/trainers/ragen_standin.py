"""A stand-in of what simia uses of RAGEN, where RAGEN is not installed: the same names and signatures, and what they promise, in our words.

`test_ragen.py` compares the signatures with those recorded from RAGEN's source (`ragen_signatures.json`). `write_checkout` makes the
files of a checkout that a launch reads; the names of its settings are recorded too (`ragen_settings.json`). The long test
derives both records from that source again.
"""

import ast
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from simia.config import assign_setting
from simia.trainers.ragen import register

REGISTERED_ENVS: dict[str, Any] = {}
REGISTERED_ENV_CONFIGS: dict[str, Any] = {}
RECORD = json.loads(Path(__file__).with_name("ragen_signatures.json").read_text())
SETTINGS = json.loads(Path(__file__).with_name("ragen_settings.json").read_text())
EXAMPLES: dict[str, Any] = {
    "flag": False,
    "number": 1,
    "text": "text",
    "list": [],
    "null": None,
    "reference": "${model_path}",
}
PLACES = {
    "BaseEnv": "ragen/env/base.py",
    "EnvStatus": "ragen/llm_agent/es_manager.py",
    "EnvStateManager": "ragen/llm_agent/es_manager.py",
    "ContextManager": "ragen/llm_agent/ctx_manager.py",
    "LLMAgentProxy": "ragen/llm_agent/agent_proxy.py",
}


class BaseEnv:
    def reset(self, seed=None, **kwargs):
        """The same for the same seed."""

    def step(self, action):
        """Observation, reward, done, info."""

    def render(self, mode="text"):
        """What the policy sees."""

    def close(self): ...


@dataclass
class EnvStatus:
    truncated: bool = False
    terminated: bool = False
    num_actions: int = 0
    rewards: list[float] = field(default_factory=list)
    seed: int | None = None


class EnvStateManager:
    """Groups of environments under one seed each; steps in order; a cache with each one's history."""

    def __init__(self, config, mode="train"):
        self.sys_config, self.mode = config, mode
        self.config = getattr(config.es_manager, mode)
        self.env_groups, self.group_size = self.config.env_groups, self.config.group_size
        self.base_seed, self.seed_counter = config.get("seed", {}).get(mode), 0
        self.envs = self._init_env_instances(self.config)
        self.rollout_cache = None

    def _init_env_instances(self, config):
        tags = [
            tag
            for tag, groups in zip(config.env_configs.tags, config.env_configs.n_groups, strict=True)
            for _ in range(groups * self.group_size)
        ]
        entries = []
        for number, tag in enumerate(tags):
            template = self.sys_config.custom_envs[tag]
            settings = REGISTERED_ENV_CONFIGS[template.env_type](**template.env_config)
            entries.append(
                {
                    "tag": tag, "env_id": number, "group_id": number // self.group_size, "config": settings,
                    "env": REGISTERED_ENVS[template.env_type](settings), "status": EnvStatus(),
                    "max_actions_per_traj": template.max_actions_per_traj,
                }
            )  # fmt: skip
        return entries

    def reset(self, seed=None):
        if seed is None and self.mode == "train":
            seed, self.seed_counter = self.base_seed + self.seed_counter, self.seed_counter + self.env_groups
        seed = self.base_seed if seed is None else seed
        for entry in self.envs:
            own = seed + entry["group_id"]
            entry["env"].reset(seed=own, mode=self.mode)
            entry["status"] = EnvStatus(seed=own)
        self.rollout_cache = [
            {
                "env_id": e["env_id"], "group_id": e["group_id"], "tag": e["tag"], "penalty": 0,
                "history": [{"state": e["env"].render(), "actions_left": e["max_actions_per_traj"]}],
            }
            for e in self.envs
        ]  # fmt: skip
        return self.rollout_cache

    def step(self, all_env_inputs):
        running = []
        for each in all_env_inputs:
            entry, cache = self.envs[each["env_id"]], self.rollout_cache[each["env_id"]]
            status, most = entry["status"], entry["max_actions_per_traj"]
            actions = each["actions"][: most - status.num_actions]
            for action in actions:
                _, reward, done, info = entry["env"].step(action)
            status.num_actions += len(actions)
            status.rewards.append(reward)
            cache["history"][-1].update({"actions": actions, "reward": reward, "info": info})
            left = most - status.num_actions
            cache["history"].append({"state": entry["env"].render(), "actions_left": left})
            if done:
                status.terminated, status.truncated = True, not info["success"]
            elif left <= 0:
                status.terminated = status.truncated = True
            if not status.terminated:
                running.append(cache)
        return running

    def get_rollout_states(self):
        for entry, cache in zip(self.envs, self.rollout_cache, strict=True):
            status = entry["status"]
            success = float(status.terminated and not status.truncated)
            cache["metrics"] = {f"{entry['tag']}/success": success, f"{entry['tag']}/num_actions": status.num_actions}
        return self.rollout_cache

    def close(self):
        for entry in self.envs:
            entry["env"].close()


class ContextManager:
    def __init__(self, config, tokenizer, processor=None, mode="train"): ...

    def _init_prefix_lookup(self): ...

    def _normalize_score_tensor(self, score_tensor, env_outputs): ...

    def get_lm_inputs(self, env_outputs, prepare_for_update): ...

    def get_env_inputs(self, lm_outputs): ...

    def formulate_rollouts(self, env_outputs): ...


class LLMAgentProxy:
    """Our loop takes its place; what it makes is given in the tests that play it."""

    def __init__(self, config, actor_rollout_wg, tokenizer): ...

    def generate_sequences(self, lm_inputs): ...

    def rollout(self, dataproto, val=False): ...


def signatures(source: str, names: dict[str, list[str]] | None = None) -> dict[str, dict[str, list[str]]]:
    """Of each known class its methods' parameters in order, those with a default as `name=`. `names`: only these methods."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name not in PLACES:
            continue
        methods = {}
        for item in node.body:
            if not isinstance(item, ast.FunctionDef) or (names and item.name not in names[node.name]):
                continue
            given = item.args
            plain = [a.arg for a in given.args]
            first = len(plain) - len(given.defaults)
            methods[item.name] = [name + "=" * (at >= first) for at, name in enumerate(plain)]
            methods[item.name] += [f"**{given.kwarg.arg}"] if given.kwarg else []
        found[node.name] = methods
    return found


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ragen` in this test's modules; ours that import it are imported anew."""
    here = sys.modules[__name__]
    modules: dict[str, dict[str, Any]] = {
        "ragen": {},
        "ragen.llm_agent": {},
        "ragen.env": {"REGISTERED_ENVS": REGISTERED_ENVS, "REGISTERED_ENV_CONFIGS": REGISTERED_ENV_CONFIGS},
        "ragen.llm_agent.es_manager": {"EnvStateManager": EnvStateManager},
        "ragen.llm_agent.ctx_manager": {"ContextManager": ContextManager},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        module.__file__ = here.__file__
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("context", "rollout"):
        monkeypatch.delitem(sys.modules, f"simia.trainers.ragen.{name}", raising=False)


def our_manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our manager's class over the stand-in's."""
    install(monkeypatch)
    register()
    install_proxy(monkeypatch)
    from simia.trainers.ragen.rollout import EnvManager

    return EnvManager


def install_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the proxy, after ours have registered: with it come our contexts, which need torch."""
    module = ModuleType("ragen.llm_agent.agent_proxy")
    module.LLMAgentProxy = LLMAgentProxy
    monkeypatch.setitem(sys.modules, module.__name__, module)


def ns(value: Any) -> Any:
    """A config as attributes and as a mapping, as OmegaConf's is."""
    return Attributes({name: ns(inner) for name, inner in value.items()}) if isinstance(value, dict) else value


def call(lamp: str, on: bool = True) -> str:
    """The policy's words that switch a lamp."""
    return f"<tool_call>\n{json.dumps({'name': 'switch', 'arguments': {'lamp': lamp, 'on': on}})}\n</tool_call>"


def inputs(manager: Any, text: Callable[[int], str], only: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """A response of every environment that runs, or of these; `text`: of the environment's number."""
    rows = [entry["env_id"] for entry in manager.envs if not entry["env"].done]
    said = {number: text(number) for number in (rows if only is None else only)}
    return [{"env_id": n, "llm_response": t, "llm_raw_response": t, "actions": [t]} for n, t in said.items()]


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


def config(pack: Path, *, groups: int = 2, size: int = 4, rounds: int = 8, **stage: Any) -> Any:
    """A run on a pack's tasks with a user by script, under one tag."""
    part = {"env_groups": groups, "group_size": size, "env_configs": {"tags": ["Lamps"], "n_groups": [groups]}}
    env = {"stage": {"pack": str(pack), "user": "scripted", **stage}, "train": None, "val": None}
    return ns(
        {
            "algorithm": {"adv_estimator": "grpo"},
            "agent_proxy": {
                "max_turn": rounds, "reward_normalization": {"grouping": "state", "method": "mean_std"},
            },
            "actor_rollout_ref": {"rollout": {"max_model_len": 2000, "response_length": 100}},
            "es_manager": {"format_penalty": -0.1, "train": part, "val": part},
            "custom_envs": {"Lamps": {"env_type": "simia", "max_actions_per_traj": 40, "env_config": env}},
        }
    )  # fmt: skip


def kinds_of(value: Any, name: str = "") -> Any:
    """A tree of settings with the kind of each value in its place. The user's own sections are left out."""
    if isinstance(value, dict):
        return {} if name == "custom_envs" else {key: kinds_of(inner, key) for key, inner in value.items()}
    if isinstance(value, str):
        return "reference" if "${" in value else "text"
    kinds = {bool: "flag", int: "number", float: "number", list: "list"}
    return "null" if value is None else kinds[type(value)]


def example_of(kinds: Any) -> Any:
    """A tree of settings with these kinds of values."""
    return {key: example_of(inner) for key, inner in kinds.items()} if isinstance(kinds, dict) else EXAMPLES[kinds]


def write_checkout(folder: Path) -> Path:
    """The files of a checkout that a launch reads, with every setting that RAGEN and its verl have."""
    for name in ("train.py", "verl/verl/protocol.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    base = example_of(SETTINGS["kinds"])
    for name, value in SETTINGS["values"].items():
        assign_setting(base, name.split("."), value)
    (folder / "config").mkdir()
    (folder / "config" / "base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    return folder


def source_of(home: Path, name: str) -> str:
    return (home / PLACES[name]).read_text(encoding="utf-8")
