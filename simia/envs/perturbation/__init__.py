"""Perturbations: planned disturbances of an episode's tools and of its user, made by code or asked of the model that simulates."""
