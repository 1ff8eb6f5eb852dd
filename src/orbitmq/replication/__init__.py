"""Replication: copies of a broker's log, and what a broker promises because of them. No sockets, no clock, no files.

`classic` is the link between one master and one slave as RocketMQ's brokers speak it.
"""
