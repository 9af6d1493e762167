"""RAGEN knows us: entries in its registries, our classes in place of its own, in every process, without a patch.

RAGEN reads `ragen.env.REGISTERED_ENVS` when it makes environments, and `ragen.llm_agent.agent_proxy` names the classes of the context
and of the environments, and has the proxy that its trainer imports. Both are changed right after their module is imported. A Ray run has many workers, most of which never import
RAGEN, and importing it at their start would load vLLM into each; so this waits for the import, and costs nothing where there is none.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from simia.trainers.ragen.settings import ENV_TYPE


def register() -> None:
    """Now where RAGEN is imported already, else at its import. Calling it again changes nothing."""
    for name, install in INSTALL.items():
        if (module := sys.modules.get(name)) is not None:
            install(module)
    if not any(isinstance(finder, ImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, ImportHook())


def add_environment(module: Any) -> None:
    from simia.trainers.ragen.env import SimiaEnv, SimiaEnvConfig

    module.REGISTERED_ENVS[ENV_TYPE] = SimiaEnv
    module.REGISTERED_ENV_CONFIGS[ENV_TYPE] = SimiaEnvConfig


def set_classes(module: Any) -> None:
    from simia.trainers.ragen.context import Context
    from simia.trainers.ragen.manager import EnvManager
    from simia.trainers.ragen.proxy import Proxy

    module.ContextManager = Context
    module.EnvStateManager = EnvManager
    module.LLMAgentProxy = Proxy


INSTALL: dict[str, Callable[[Any], None]] = {"ragen.env": add_environment, "ragen.llm_agent.agent_proxy": set_classes}


class ImportHook(MetaPathFinder):
    """Finds nothing by itself: it lets the others find one of these modules, and adds what is done when it has run."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in INSTALL or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = HookedLoader(spec.loader, INSTALL[fullname])
        return spec


class HookedLoader(Loader):
    """The module's own loader, and one thing more when it is done."""

    def __init__(self, inner: Loader, install: Callable[[Any], None]) -> None:
        self._inner, self._install = inner, install

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._install(module)
