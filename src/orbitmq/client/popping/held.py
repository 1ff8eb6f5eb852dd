"""Popped messages that one consumer holds: how long the broker hides each, and when to renew that.

Rules of this file
1. A message is renewed when half of its time has passed, whether it waits or is in hand; at most one renewal of it is under way. One that
   is settled meanwhile is acknowledged with the receipt that the renewal brings.
2. What the broker hides no more is held no more: another member may have it already.
3. No clock is read. Times are those of the caller's monotonic clock, in milliseconds.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from orbitmq.protocol.pop_receipts import PopReceipt

M = TypeVar("M")

BACK_OFF_MS = tuple(
    seconds * 1_000 for seconds in (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
"""Pauses before the second, third ... attempt; RocketMQ's table."""


def back_off_ms(reconsume_times: int) -> int:
    """How long a message waits that has failed after so many attempts before this one."""
    return BACK_OFF_MS[min(max(reconsume_times, 0), len(BACK_OFF_MS) - 1)]


class HeldPop(msgspec.Struct, eq=False):
    """One held message.

    until_ms: when the broker stops hiding it. renew_at_ms: when to ask for more time; None while a renewal is under way, or when it is
    not to be renewed any more.
    """

    receipt: PopReceipt
    until_ms: int
    renew_at_ms: int | None
    taken_ms: int
    begun_ms: int | None = None

    def renewed(self, receipt: PopReceipt, invisible_ms: int, now_ms: int) -> None:
        """The broker hides it anew for so long, under this receipt; its times are by the broker's clock, which may be set back."""
        self.receipt = receipt
        self.until_ms = now_ms + invisible_ms
        self.renew_at_ms = now_ms + invisible_ms // 2


class HeldPops(Generic[M]):
    """What a consumer holds of one queue or broker. A message is its own key."""

    def __init__(self, settle_timeout_ms: int) -> None:
        self._settle_timeout_ms = settle_timeout_ms
        self._held: dict[M, HeldPop] = {}

    def __len__(self) -> int:
        return len(self._held)

    def messages(self) -> list[M]:
        return list(self._held)

    def add(self, message: M, receipt: PopReceipt, now_ms: int) -> None:
        """It was popped at this instant or before."""
        self._held[message] = HeldPop(
            receipt, now_ms + receipt.invisible_ms, now_ms + receipt.invisible_ms // 2, now_ms
        )

    def holds(self, message: M) -> bool:
        return message in self._held

    def find(self, message: M) -> HeldPop | None:
        return self._held.get(message)

    def begin(self, message: M, now_ms: int) -> bool:
        """The program begins with it; False when it is not held any more."""
        held = self._held.get(message)
        if held is None or now_ms >= held.until_ms:
            return False
        held.begun_ms = now_ms
        return True

    def is_begun(self, message: M) -> bool:
        held = self._held.get(message)
        return held is not None and held.begun_ms is not None

    def settle(self, message: M) -> HeldPop | None:
        """It leaves the program's hands; None when it has gone before."""
        return self._held.pop(message, None)

    def due(self, now_ms: int) -> list[M]:
        """Messages to be renewed now, those first whose time ends first. Each is out of the list until it was renewed, or `not_renewed`."""
        due = [
            (held.until_ms, number, message)
            for number, (message, held) in enumerate(self._held.items())
            if held.renew_at_ms is not None and held.renew_at_ms <= now_ms
        ]
        due.sort(key=lambda entry: entry[:2])
        for _, _, message in due:
            self._held[message].renew_at_ms = None
        return [message for _, _, message in due]

    def not_renewed(self, message: M, again_at_ms: int) -> None:
        """The broker was not reached; it is asked again while there is time."""
        held = self._held.get(message)
        if held is not None and again_at_ms < held.until_ms:
            held.renew_at_ms = again_at_ms

    def stuck(self, now_ms: int) -> list[M]:
        """Messages that are in hand for too long, once each: they are not renewed any more."""
        stuck = [
            message
            for message, held in self._held.items()
            if held.begun_ms is not None and now_ms - held.begun_ms >= self._settle_timeout_ms
        ]
        for message in stuck:
            self._held[message].renew_at_ms = None
            self._held[message].begun_ms = None
        return stuck

    def gone(self, now_ms: int) -> list[M]:
        """Messages that the broker hides no more; they are forgotten."""
        gone = [message for message, held in self._held.items() if now_ms >= held.until_ms]
        for message in gone:
            del self._held[message]
        return gone

    def next_ms(self) -> int | None:
        """When something of this has to be looked at next; None while nothing is held."""
        times = []
        for held in self._held.values():
            times.append(held.until_ms)
            if held.renew_at_ms is not None:
                times.append(held.renew_at_ms)
            if held.begun_ms is not None:
                times.append(held.begun_ms + self._settle_timeout_ms)
        return min(times, default=None)
