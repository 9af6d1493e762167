"""Synthesis: environments from nothing but a domain, a task file or coding problems, verified by execution."""
