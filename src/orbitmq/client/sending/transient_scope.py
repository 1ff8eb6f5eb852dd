"""The scope in which a producer numbers its own sends, so that a broker recognises its repeats.

A broker remembers the unique ids of a scope's current and previous *epoch* and answers a repeat with the first result. A producer
that gives its sends no scope of their own uses one that nobody else knows, and lets the epoch roll: what it has sent before
the previous epoch it will never send again, and brokers may forget it.

Rules of this file
1. No I/O, no clock: `now_ms` is monotonic and passed in.
2. The epoch does not roll while a send of the previous one is under way, because its repeat would be refused as stale. Only when the
   current epoch has become very large it rolls all the same; the sends left behind are then not repeated.
3. A repeat is allowed for `TRANSIENT_REPEAT_MS_MAX` after the first attempt: a broker may forget a scope that was idle for a minute.
"""

from __future__ import annotations

from typing import Final

from orbitmq.limits.client import CLIENT_EPOCH_SENDS_MAX, TRANSIENT_EPOCH_MS, TRANSIENT_REPEAT_MS_MAX
from orbitmq.protocol.properties import Property

TRANSIENT_PREFIX: Final = "~"
"""Begins the name of a scope that brokers may forget after a minute of idleness."""

WINDOW_PREFIX: Final = "^"
"""Begins the name of a scope whose sends have windows and no epochs; the name of the topic follows."""

EPOCH_SENDS: Final = 4_096
"""Sends after which the epoch rolls: what a broker keeps of one producer is twice this many ids."""


class TransientScope:
    """The epochs of one producer.

    `text` holds the encoded properties of the current epoch; ask for it right after `enter`.
    """

    __slots__ = ("_before_open_count", "_open_count", "_sent_count", "_started_ms", "epoch", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = TRANSIENT_PREFIX + name
        self.epoch = 0
        self.text = ""
        self._started_ms = 0
        self._sent_count = 0
        self._open_count = 0
        self._before_open_count = 0

    def enter(self, now_ms: int) -> int:
        """A send begins; the epoch it belongs to, which `leave` wants back at its end."""
        if self._sent_count >= EPOCH_SENDS or now_ms - self._started_ms >= TRANSIENT_EPOCH_MS or not self.epoch:
            self._roll(now_ms)
        self._sent_count += 1
        self._open_count += 1
        return self.epoch

    def leave(self, epoch: int) -> None:
        """A send has ended and will not be repeated."""
        if epoch == self.epoch:
            self._open_count -= 1
        elif epoch == self.epoch - 1:
            self._before_open_count -= 1

    def may_repeat(self, epoch: int, age_ms: int) -> bool:
        """Whether a broker still recognises a send of `epoch` whose first attempt was `age_ms` ago."""
        return epoch >= self.epoch - 1 and age_ms <= TRANSIENT_REPEAT_MS_MAX

    def _roll(self, now_ms: int) -> None:
        if self._before_open_count and self._sent_count < CLIENT_EPOCH_SENDS_MAX:
            return
        self.epoch += 1
        self.text = once_text(self.name, self.epoch)
        self._started_ms = now_ms
        self._before_open_count, self._open_count = self._open_count, 0
        self._sent_count = 0


def once_text(scope: str, epoch: int, key: str | None = None) -> str:
    """The properties of an idempotent send, encoded, to be put behind the others."""
    text = f"{Property.ONCE_SCOPE}\x01{scope}\x02{Property.ONCE_EPOCH}\x01{epoch}\x02"
    return text if key is None else f"{text}{Property.ONCE_KEY}\x01{key}\x02"


def within_text(topic: str, scope: str | None, window_ms: int, key: str) -> str:
    """As `once_text`, for a send to `topic` with a window."""
    name = WINDOW_PREFIX + (topic if scope is None else f"{topic}/{scope}")
    return (
        f"{Property.ONCE_SCOPE}\x01{name}\x02{Property.ONCE_WINDOW}\x01{window_ms}\x02{Property.ONCE_KEY}\x01{key}\x02"
    )
