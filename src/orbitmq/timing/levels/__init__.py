"""Delay levels: which delayed messages are pending, and their release."""
