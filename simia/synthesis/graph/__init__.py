"""The tool graph: its edges show which tool needs the result, the condition or the change of another tool; chains are sampled from it."""
