"""Register simia's environment and classes with RAGEN when its modules are imported, without a patch.

RAGEN reads `ragen.env.REGISTERED_ENVS` when it makes environments, and takes the classes of context, environments and proxy from
`ragen.llm_agent.agent_proxy`. The hook changes both modules right after their import. It does not import RAGEN itself: most of
Ray's workers never need it, and the import would load vLLM into each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from simia.trainers.ragen.settings import ENV_TYPE, parse_env_config


def register() -> None:
    """Change RAGEN's modules now if they are imported already, else at their import. A second call changes nothing."""
    for name, install in INSTALL.items():
        if (module := sys.modules.get(name)) is not None:
            install(module)
    if not any(isinstance(finder, ImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, ImportHook())


def add_environment(module: Any) -> None:
    from simia.trainers.ragen.env import SimiaEnv

    module.REGISTERED_ENVS[ENV_TYPE] = SimiaEnv
    module.REGISTERED_ENV_CONFIGS[ENV_TYPE] = parse_env_config


def set_classes(module: Any) -> None:
    from simia.trainers.ragen.context import Context
    from simia.trainers.ragen.rollout import EnvManager, Proxy

    module.ContextManager = Context
    module.EnvStateManager = EnvManager
    module.LLMAgentProxy = Proxy


INSTALL: dict[str, Callable[[Any], None]] = {"ragen.env": add_environment, "ragen.llm_agent.agent_proxy": set_classes}


class ImportHook(MetaPathFinder):
    """Find the modules of `INSTALL` on their packages' paths, with a loader that changes them after they have run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in INSTALL else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_install(module: ModuleType) -> None:
            execute(module)
            INSTALL[fullname](module)

        spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec
