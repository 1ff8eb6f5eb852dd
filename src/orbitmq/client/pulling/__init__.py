"""Decisions of reading without a network: requests, cached polls, settings."""
