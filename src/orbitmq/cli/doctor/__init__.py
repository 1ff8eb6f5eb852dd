"""Checks of this machine, and of a server that runs on it."""
