"""Commit-log files as rows: a store directory of orbitmq or RocketMQ, read where it lies, without a broker.

Rules of this package
1. Nothing is ever written into the store, locked or repaired.
2. The driver finds the files, the end of the log and the ranges; each range is read by a task on its own.
3. Every byte between the beginning and the end is a record, a filler, or damage that is told.
"""
