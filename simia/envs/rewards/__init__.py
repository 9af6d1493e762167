"""Rewards of an episode. The rules read only the trajectory, so a stored one can be scored again without its world; a judge needs a model."""

from simia.envs.rewards.compose import score_trajectory

__all__ = ["score_trajectory"]
