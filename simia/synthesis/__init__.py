"""Synthesis: make environments from a domain, a file of tasks, coding problems or sources, and verify them by execution."""
