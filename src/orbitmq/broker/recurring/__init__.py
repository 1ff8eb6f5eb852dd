"""Recurring messages as a broker serves them: `requests` answers those who define them, `sender` makes messages of their runs."""
