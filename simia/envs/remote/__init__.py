"""Environments on another machine: the client of `simia serve PACK --openenv`."""
