"""The simulated back end (Simia-RL, §2.3): a model answers the agent's calls, and a ledger of what it answered keeps later answers consistent."""

from simia.envs.worlds.simulated.backend import SimulatedBackend, make_simulated_backend
from simia.envs.worlds.simulated.settings import SimulatedSettings

__all__ = ["SimulatedBackend", "SimulatedSettings", "make_simulated_backend"]
