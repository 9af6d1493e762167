"""Connections to trainers. Each trainer has a Python environment of its own, since their requirements conflict with each other and simia's."""
