"""Conversations over composed environments: EnvFactory's QueryGen (§3.4), from sampled chains of tools to verified turns."""
