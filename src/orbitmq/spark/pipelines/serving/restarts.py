"""How long what failed is left alone before it is begun again.

Rules of this file
1. Pure. A pause is twice the one before, up to a bound; what went well makes the next pause the shortest again.
"""

from __future__ import annotations

from orbitmq.limits.spark import SERVICE_RESTART_MS, SERVICE_RESTART_MS_MAX


class Restarts:
    """Of one stream or job."""

    def __init__(self) -> None:
        self.failures = 0
        """One after the other, up to now."""

    def worked(self) -> None:
        self.failures = 0

    def failed(self) -> int:
        """Milliseconds until the next try."""
        pause_ms = SERVICE_RESTART_MS << min(self.failures, 30)
        self.failures += 1
        return min(pause_ms, SERVICE_RESTART_MS_MAX)
