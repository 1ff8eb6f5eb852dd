"""Access: who calls, and what a caller may do.

Decisions about one request at a time, made from what the request carries and from tables in memory. Sockets, files and clocks are with
whoever asks: `orbitmq.broker` and `orbitmq.server`.
"""
