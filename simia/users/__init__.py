"""Who plays the user: nobody (the task is the first message), or the task's script. A model as the user stands beside them later."""

from simia.users.scripted import NoUser, ScriptedUser
from simia.users.user import Stop, User, View

__all__ = ["NoUser", "ScriptedUser", "Stop", "User", "View"]
