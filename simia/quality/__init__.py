"""Is a trajectory good: schema, grounding, leaks, duplicates, contamination, diversity, judges."""
