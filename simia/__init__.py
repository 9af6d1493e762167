"""simia: simulated and executable environments for training language-model agents."""

__version__ = "0.1.0"
