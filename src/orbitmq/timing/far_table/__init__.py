"""The far table: timer messages of a whole cluster in one place on shared storage."""
