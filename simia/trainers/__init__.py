"""Trainers that simia feeds, each in an environment of its own: their requirements exclude one another and ours."""
