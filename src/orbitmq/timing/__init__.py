"""Delay levels: when a message falls due, and bringing it back to its topic."""
