"""Controlled expansion of a chain to a subgraph of tools that all execute (ScaleEnv §4.2.2)."""
