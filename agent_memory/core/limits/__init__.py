"""Limits of files and of agents, which hold across processes; and the count of what an agent has."""
