"""Who plays the user: nobody (the task is the first message), the task's script, or a model."""

from simia.envs.users.llm import LLMUser, UserSettings
from simia.envs.users.scripted import NoUser, ScriptedUser
from simia.envs.users.user import Stop, User, View

__all__ = ["LLMUser", "NoUser", "ScriptedUser", "Stop", "User", "UserSettings", "View"]
