"""What does not work at present, and when a line of the log is due about it.

A broker that is away fails nine pulls a second, the heartbeat, offsets and rebalances. A reader wants one line when that begins, one when
it is over, and one now and then meanwhile.

Rules of this file
1. The network says of a server that it is away and that it is back. What failed for that reason says nothing more of it, but to those
   who read DEBUG.
2. Whatever else fails again and again has a subject. Its first failure is a line, later ones are after `CLIENT_TROUBLE_AGAIN_MS` and then
   ever twice as much time, and its end is a line if its beginning was. What fails again soon after that has no second first line.
3. Beginnings and ends are warnings alike: whoever sees only the one believes that it still lasts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.client._async.runtime import log, monotonic_ms
from orbitmq.errors import ConnectionLostError, OrbitError
from orbitmq.limits.client import CLIENT_TROUBLE_AGAIN_MS, CLIENT_TROUBLE_AGAIN_MS_MAX, CLIENT_TROUBLES_MAX


class Wording(NamedTuple):
    """Lines with the subject and the reason; the seconds stand in between."""

    begins: str
    goes_on: str
    is_over: str


AWAY: Final = Wording("%s is away: %s", "%s has been away for %d s: %s", "%s is back after %.1f s")
FAILS: Final = Wording("%s failed and is tried again: %s", "%s has failed for %d s: %s", "%s works again after %.1f s")


class _Failing:
    __slots__ = ("due_ms", "pause_ms", "said", "since_ms", "subject", "wording")

    def __init__(self, wording: Wording, subject: str, now_ms: int, quiet_ms: int) -> None:
        self.wording = wording
        self.subject = subject
        self.since_ms = now_ms
        self.due_ms = now_ms + quiet_ms
        self.pause_ms = CLIENT_TROUBLE_AGAIN_MS
        self.said = False


class Troubles:
    """Of one client."""

    def __init__(self) -> None:
        self._open: dict[str, _Failing] = {}
        self._calm_until_ms: dict[str, int] = {}
        """What comes and goes has its lines no more often than this."""

    def failed(self, subject: str, reason: OrbitError) -> None:
        """A step of `subject` failed, and is done again. Nothing is said of what failed because a server is away."""
        if isinstance(reason, ConnectionLostError):
            log.debug("%s failed: %s", subject, reason)
        else:
            self.note(subject, FAILS, subject, str(reason))

    def worked(self, key: str) -> None:
        """What failed works again; nothing where it did not fail."""
        if self._open:
            self._end(key)

    def note(self, key: str, wording: Wording, subject: str, reason: str, *, quiet_ms: int = 0) -> None:
        """As `failed`, worded by the caller; what ends within `quiet_ms` has no line."""
        now_ms = monotonic_ms()
        trouble = self._open.get(key)
        if trouble is None:
            for table in (self._open, self._calm_until_ms):
                if len(table) >= CLIENT_TROUBLES_MAX:
                    table.pop(next(iter(table)))
            quiet_ms = max(quiet_ms, self._calm_until_ms.get(key, now_ms) - now_ms)
            trouble = self._open[key] = _Failing(wording, subject, now_ms, quiet_ms)
        if now_ms < trouble.due_ms:
            log.debug(wording.begins, subject, reason)
        elif not trouble.said:
            trouble.said = True
            trouble.due_ms = now_ms + trouble.pause_ms
            log.warning(wording.begins, subject, reason)
        else:
            trouble.pause_ms = min(2 * trouble.pause_ms, CLIENT_TROUBLE_AGAIN_MS_MAX)
            trouble.due_ms = now_ms + trouble.pause_ms
            log.warning(wording.goes_on, subject, (now_ms - trouble.since_ms) // 1_000, reason)

    def forget(self, key: str) -> None:
        """Nobody asks for it any more."""
        self._open.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def _end(self, key: str) -> None:
        trouble = self._open.pop(key, None)
        if trouble is not None and trouble.said:
            self._calm_until_ms[key] = monotonic_ms() + CLIENT_TROUBLE_AGAIN_MS
            log.warning(trouble.wording.is_over, trouble.subject, (monotonic_ms() - trouble.since_ms) / 1_000)
