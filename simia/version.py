"""The version of simia."""

__version__ = "0.2.0"
