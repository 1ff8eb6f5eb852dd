"""Sending: producers, their attempts and rooms, requests with replies, the trace of messages."""
