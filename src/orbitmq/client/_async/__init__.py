"""The asyncio client: the source from which the synchronous twin is generated.

Rules of this package
1. Only `runtime` and `transport` use asyncio; all other modules are written with what these two offer.
2. Decisions live one level up, in pure modules; what is here waits, sends, receives and applies them.
3. What is public in an exported class has a docstring and a synchronous twin, or stands in the tables of scripts/sync_sources.py.
4. Background work is owned: every task belongs to a `Tasks` and ends with it, and one that fails says so.
"""
