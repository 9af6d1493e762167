"""Rewards that need no model, pure over the record: any stored trajectory can be scored again, without its world."""

from simia.envs.rewards.compose import score_trajectory

__all__ = ["score_trajectory"]
