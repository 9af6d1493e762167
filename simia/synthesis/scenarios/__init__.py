"""EnvScaler's own parts: task sources, the dual-agent assessment, scenarios with checks, solutions and users."""
