"""Bounds of the embedded brokers that tests of users run against."""

from __future__ import annotations

from typing import Final

EMBEDDED_REST_MS: Final = 10_000
"""Real time that an embedded broker, or a consumer group that a test waits for, has to finish at one virtual instant. A test
that fails should say why while its author is still looking."""

EMBEDDED_REST_SPINS: Final = 200
"""Passes of the loop without a pause before the wait for rest pauses a millisecond between them: what the loop alone can
finish takes a few, what a thread has to finish takes longer than all of these."""

EMBEDDED_ASK_MS: Final = 2_000
"""Patience with a client that is asked what it has in hand."""
