"""Worlds: tools, calls and state of one episode, opened by a back end. Users, turns, limits and rewards are the Environment's.

Back ends are found by the entry-point group `simia.backends`; see `simia.envs.opening.open_environment`.
"""

from simia.envs.worlds.world import Backend, ToolResult, World

__all__ = ["Backend", "ToolResult", "World"]
