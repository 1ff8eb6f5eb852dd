"""Changes of a Delta table to a topic."""
