"""Agents in environments: play many episodes at once into a run and score them."""
