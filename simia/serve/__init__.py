"""Serve a pack's episodes to other programs: by the Model Context Protocol and by OpenEnv."""
