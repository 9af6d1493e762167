"""simia: simulated and executable environments for training language-model agents."""

from simia import amplification as amplify
from simia.errors import Code, Issue, UserError
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory
from simia.version import __version__ as __version__

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
]
