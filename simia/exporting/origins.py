"""Describe for a data card how a run's trajectories were made: who played the agent, the user and the tools."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from simia.config import parse_config
from simia.envs.role_models import user_kind
from simia.errors import UserError
from simia.jobs import Run
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.search_path import searching_from

WRITTEN = "A language model wrote user, agent and tool results. Names, numbers and outcomes in them are invented."
TRAINED = "They are episodes of a training, whose policy is the agent."
TOOLS = {
    "executable": "Tool results come from the pack's code, which was run.",
    "shadow": "Tool results come from the pack's code, which was run.",
    "simulated": "A language model wrote the tool results. Names, numbers and outcomes in them are invented.",
}
MIXED = "Some tools ran the pack's code, and a language model wrote the results of others, which are invented."
USERS = {
    "none": "The user's message is the task's instruction.",
    "scripted": "The user's messages are those of the task's script.",
    "llm": "A language model wrote the user's messages.",
}
REFERENCES = ("reference", "following", "repeating")
DISTURBED = "Some results or messages of users were disturbed on purpose (`perturb`)."


def describe_origin(run: Run) -> str:
    """Write a few sentences about who wrote a run's trajectories."""
    if run.is_training:
        return TRAINED
    if not run.is_rollout:
        return WRITTEN
    config = run.saved_config()
    agent, backend, facts = config.get("agent", "llm"), config.get("backend"), run.ledger.meta("facts") or {}
    if agent == "llm":
        said = [f"The agent is the model `{facts.get('model')}`."]
    elif agent == "function":
        said = [f"The agent is the Python function `{config.get('agent_function')}` of the run's author."]
    else:
        solution = ", which makes the calls of the tasks' solutions" if agent in REFERENCES else ""
        said = [f"The agent is `{agent}`{solution} and is no model."]
    with searching_from(run.start_folder):
        said.append(USERS.get(find_user(config), "The users are those of the packs."))
    kinds = {*backend.values()} if isinstance(backend, dict) else {backend}
    known = [text for kind, text in TOOLS.items() if kind in kinds]
    said.append(
        MIXED if len({*known}) > 1 else known[0] if known else f"Tool results come from the back end `{backend}`."
    )
    return " ".join([*said, DISTURBED] if config.get("perturb") else said)


def find_user(config: dict[str, Any]) -> str:
    """Return the kind of user of a rollout; empty if its config leaves this to packs that cannot be read."""
    if config.get("user") or config.get("packs") or "://" in str(config.get("pack")):
        return str(config.get("user") or "")
    with suppress(UserError):
        settings = parse_config(RolloutConfig, config, where="the run's config")
        return user_kind(settings, Pack.load(settings.pack))
    return ""
