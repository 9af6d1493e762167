"""Run code that nobody vouches for: the walls (probe, jail), the process that forks workers (zygote), the workers, limits."""
