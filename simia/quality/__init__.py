"""Judge trajectories: schemas, grounding, leaks, duplicates, contamination, model judges."""
