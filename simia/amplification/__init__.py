"""Simia-SFT: seed trajectories in, many validated ones out (prefilter → prompt → simulate → repair → check → dedupe)."""
