"""Which cluster a command asks, and as whom: options, contexts, expected brokers, completion."""
