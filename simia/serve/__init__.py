"""Serving: a pack's episodes for clients that are no Python: any program that speaks the Model Context Protocol."""
