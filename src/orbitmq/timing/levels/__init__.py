"""Delay levels: which delayed messages are pending (`runs`), and their release (`release`)."""
