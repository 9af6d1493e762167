"""verl on a simia environment: an agent loop for its rollouts, its data sets, and the command that starts it.

`launch` is what `simia train verl` calls. The agent loop (`simia.trainers.verl.agent_loop`) is imported by verl's workers alone.
"""

from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.start import launch, write_tasks

__all__ = ["VerlSettings", "launch", "write_tasks"]
