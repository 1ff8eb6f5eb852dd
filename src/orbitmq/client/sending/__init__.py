"""Decisions of sending without a network: queues, attempts, slow brokers, scopes, replies, traces."""
