"""Every bound of the system, each with its reason, in one module per concern.

Rules of this package
1. A queue, batch, buffer, retry count or name length without a line here is a bug.
2. Beyond a bound the caller gets a clear error; nothing is silently cut or clamped, and memory stays bounded.
3. Units are in the names. No name stands in two modules, and each is read by code.
4. Where a bound stands is decided by who enforces it; what both ends of a connection enforce is in `wire`.
"""
