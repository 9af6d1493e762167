"""simia: simulated and executable environments for training language-model agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simia.errors import Code, Issue, UserError
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

if TYPE_CHECKING:
    from simia.amplification.api import amplify
    from simia.rollouts.api import rollout

__version__ = "0.1.0"
__all__ = [
    "Code",
    "Issue",
    "Message",
    "Pack",
    "Reward",
    "Task",
    "ToolCall",
    "ToolSpec",
    "Trajectory",
    "UserError",
    "amplify",
    "rollout",
]
LAZY = {"amplify": "simia.amplification.api", "rollout": "simia.rollouts.api"}


def __getattr__(name: str) -> Any:
    """The names whose modules are imported at their first use."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(LAZY[name]), name)
