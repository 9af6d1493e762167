"""Users: none (the task is the first message), the task's script, or a model."""

from collections.abc import Callable

from simia.envs.users.llm import LLMUser, UserSettings
from simia.envs.users.scripted import NoUser, ScriptedUser
from simia.envs.users.user import OPENS_GOAL, EpisodeView, User, UserStop, make_user_answer
from simia.task import Task

__all__ = [
    "OPENS_GOAL", "USERS", "EpisodeView", "LLMUser", "NoUser", "ScriptedUser", "User", "UserMaker", "UserSettings", "UserStop", "make_user_answer",
]  # fmt: skip

UserMaker = Callable[[Task], User]
USERS: dict[str, UserMaker] = {"none": NoUser, "scripted": ScriptedUser}
"""Users without a model, by name."""
