"""POP consumption by a client: settings, receipts, and what is held, without input or output."""
