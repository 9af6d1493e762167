"""Select trajectories to train on, and measure how varied the selection is.

`near_duplicates` finds what nearly repeats a seed or an earlier trajectory, `contamination` what repeats a benchmark, `diversity` says how
varied a set is, and `mixing` takes so many of each domain. Nothing here asks a model.
"""
