"""The version of simia."""

__version__ = "0.3.0"
