"""Decisions of a broker, one module for each concern; time, store and connections come from outside.

A send goes through `sends` and `admission`, a pull through `pull` and `long_poll`, the offsets of groups through `offset_requests`. A part
that answers requests is a `room`; `rooms` lists them, and `core` is what they share.
"""
