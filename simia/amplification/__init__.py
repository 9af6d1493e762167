"""Simia-SFT: seed trajectories in, many validated ones out (pre-filter → prompt → simulate → repair → check → select)."""
