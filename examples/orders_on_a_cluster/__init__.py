"""Orders through a Spark cluster: read as JSON, priced, written back exactly once while executors are killed, and archived."""
