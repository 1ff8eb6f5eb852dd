"""Blocking connections that ask many questions at once; for readers of whole queues and for programs without an event loop."""
