"""simia: simulated and executable environments for training language-model agents.

This module exports the public names; docs/reference/api.md documents each. Their modules are imported at first use, so that
`import simia` is fast.
"""

from __future__ import annotations

from simia.version import __version__ as __version__

TYPE_CHECKING = False  # as in `typing`, whose import would take most of the time of `import simia`
if TYPE_CHECKING:
    from typing import Any

    from simia.amplification.session import amplify as amplify
    from simia.envs.config import EnvironmentConfig as EnvironmentConfig
    from simia.envs.environment import Environment as Environment
    from simia.envs.episode import Episode as Episode
    from simia.envs.opening import open_environment as open_environment
    from simia.errors import Code as Code
    from simia.errors import Issue as Issue
    from simia.errors import UserError as UserError
    from simia.exporting.api import export as export
    from simia.formats import load_trajectories as load_trajectories
    from simia.pack import Pack as Pack
    from simia.reward import Reward as Reward
    from simia.rollouts.session import rollout as rollout
    from simia.synthesis.session import synthesize as synthesize
    from simia.task import Task as Task
    from simia.tool import ToolSpec as ToolSpec
    from simia.trajectory import Message as Message
    from simia.trajectory import ToolCall as ToolCall
    from simia.trajectory import Trajectory as Trajectory
else:  # a type checker that saw `__getattr__` would accept any name
    MODULES = {
        "amplify": "simia.amplification.session",
        "rollout": "simia.rollouts.session",
        "synthesize": "simia.synthesis.session",
        "export": "simia.exporting.api",
        "open_environment": "simia.envs.opening",
        "load_trajectories": "simia.formats",
        "Environment": "simia.envs.environment",
        "Episode": "simia.envs.episode",
        "EnvironmentConfig": "simia.envs.config",
        "Pack": "simia.pack",
        "Task": "simia.task",
        "ToolSpec": "simia.tool",
        "Trajectory": "simia.trajectory",
        "Message": "simia.trajectory",
        "ToolCall": "simia.trajectory",
        "Reward": "simia.reward",
        "Issue": "simia.errors",
        "Code": "simia.errors",
        "UserError": "simia.errors",
    }
    __all__ = ["__version__", *MODULES]

    def __getattr__(name: str) -> Any:
        if name not in MODULES:
            raise AttributeError(f"module 'simia' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return [*globals(), *MODULES]
