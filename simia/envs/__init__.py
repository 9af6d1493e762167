"""Environments: a pack opened with a back end, its episodes, users, rewards and worlds."""
