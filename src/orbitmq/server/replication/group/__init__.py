"""A member of a replicated group in its process: what drives the core of `orbitmq.replication`, and what the broker does in each role."""
