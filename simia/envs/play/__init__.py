"""Agents, and the player that runs one episode with an agent."""
