"""verl on a simia environment: an agent loop for its rollouts, its data sets, and the command that starts verl.

`launch` is what `simia train verl` calls. The agent loop (`simia.trainers.verl.agent_loop`) is imported only by verl's workers.
"""

from simia.trainers.verl.settings import VerlSettings
from simia.trainers.verl.start import launch, write_tasks

__all__ = ["VerlSettings", "launch", "write_tasks"]
