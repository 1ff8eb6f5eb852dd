"""Recurring messages as a broker serves them: `requests` answers those who define them, `desk` makes messages of their runs."""
