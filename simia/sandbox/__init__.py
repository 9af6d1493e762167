"""Run untrusted code: isolation, the process that forks workers (zygote), workers, limits."""
