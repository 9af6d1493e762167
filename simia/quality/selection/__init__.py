"""Select: which of the accepted trajectories a careful person would train on, and what the chosen set looks like.

`near` finds what nearly repeats a seed or an earlier trajectory, `contamination` what repeats a benchmark, `diversity` says how
varied a set is, and `mixing` takes so many of each domain. Nothing here asks a model.
"""
