"""The tool graph: which tool's result, condition or change another tool needs, and chains of tools sampled from it."""
