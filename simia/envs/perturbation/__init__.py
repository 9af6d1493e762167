"""Perturbations: planned disturbances of an episode's tools and of its user, made by code or, through the prompt, by the model that simulates."""
