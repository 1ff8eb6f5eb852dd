"""The synchronous client: the asyncio client on a thread of its own.

Rules of this package
1. `client`, `producer`, `consumer`, `delivery` and the other modules that say so are generated from their namesakes in `_async` by
   scripts/generate_sync.py. Written by hand are `loop_thread` (the thread and the calls into it), `handler_threads` (plain
   functions as handlers) and `delivered` (what a message keeps outside the loop).
2. All state of a client lives in the event loop of its thread. Other threads hand calls in and wait; they take no lock and change
   nothing themselves.
3. Whatever waits can be interrupted (Ctrl-C) and ends when the client is closed.
"""
