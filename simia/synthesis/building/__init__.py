"""Build an environment: its design checked, its tools written, tested and repaired, its initial states, its pack."""
