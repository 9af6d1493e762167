"""Run untrusted code: isolation, worker processes and the process that forks them (zygote), limits."""
