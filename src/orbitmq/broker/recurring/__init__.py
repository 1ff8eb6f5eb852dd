"""Recurring messages as a broker serves them: `requests` answers those who define them, `run_sending` makes messages of their runs."""
