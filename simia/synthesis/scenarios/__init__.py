"""EnvScaler's task sources, dual-agent assessment, and scenarios with checks, solutions and users; other recipes use some of these parts."""
