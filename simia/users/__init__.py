"""Who plays the user: nobody (the task is the first message), the task's script, or a model."""

from simia.users.llm import LLMUser, UserSettings
from simia.users.scripted import NoUser, ScriptedUser
from simia.users.user import Stop, User, View

__all__ = ["LLMUser", "NoUser", "ScriptedUser", "Stop", "User", "UserSettings", "View"]
