"""Harder and easier variants of tasks of any pack, written by a model and verified by execution."""
