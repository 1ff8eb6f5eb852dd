"""The timer behind the alarm: exact to a tenth of a millisecond where the system can do that, to a millisecond elsewhere.

Event loops count whole milliseconds (uvloop) or round up to them (epoll), so whatever waits for an instant is late by half
of one on average. A timer descriptor of Linux is ready at its nanosecond, and the loop wakes for it as for a socket.

Rules of this file
1. A descriptor is never early by the monotonic clock. The timer of a loop may be, by less than a millisecond: who is called looks
   at the clock.
2. A timer is set once or not at all; setting it again forgets the time before.
3. What the system refuses (no such call, no descriptor left, a loop without readers) leaves the timer of the loop.

Source: timerfd_create(2).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

from orbitmq.units import NS_PER_MS, NS_PER_S


class FineTimer(Protocol):
    """Calls back once after each `set`."""

    def set(self, delay_ns: int) -> None:
        """Call back after so long, at once when that is over, and not at the time that was set before."""
        ...

    def close(self) -> None:
        """Call back no more."""
        ...


def whole_ms(delay_ns: int) -> int:
    """The delay to ask a loop for: whole milliseconds, rounded up.

    uvloop counts whole milliseconds. With a rounded delay half of its timers fire early, find nothing due and are set
    again, several times within that millisecond. One more would be safe in every case, and every delivery late by it.
    """
    return max(-(-delay_ns // NS_PER_MS), 0)


class LoopTimer:
    """The timer that every event loop has."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fired: Callable[[], None]) -> None:
        self._loop = loop
        self._fired = fired
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_later(whole_ms(delay_ns) / 1_000, self._fired)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Spec(ctypes.Structure):
    """`struct itimerspec` where a `long` has 64 bits."""

    _fields_ = (
        ("interval_s", ctypes.c_int64),
        ("interval_ns", ctypes.c_int64),
        ("value_s", ctypes.c_int64),
        ("value_ns", ctypes.c_int64),
    )


class DescriptorTimer:
    """A timer descriptor of Linux. 2 us to set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fired: Callable[[], None]) -> None:
        """Raises OSError where the system has none, NotImplementedError where the loop cannot wait for it."""
        if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
            raise OSError("timer descriptors are known of 64-bit Linux only")
        library = ctypes.CDLL(None, use_errno=True)  # `os` has these calls from Python 3.13 on
        self._set_time = library.timerfd_settime
        self._spec = _Spec()
        self._loop = loop
        self._fired = fired
        self._fd: int = library.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _refused("timerfd_create")
        try:
            loop.add_reader(self._fd, self._ready)
        except BaseException:
            os.close(self._fd)
            raise

    def set(self, delay_ns: int) -> None:
        if self._fd < 0:
            return
        spec = self._spec
        spec.value_s, spec.value_ns = divmod(max(delay_ns, 1), NS_PER_S)  # nothing at all would switch it off
        if self._set_time(self._fd, 0, ctypes.byref(spec), None) < 0:
            raise _refused("timerfd_settime")

    def _ready(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set again since the loop saw it ready
        self._fired()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def _refused(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


def fine_timer(loop: asyncio.AbstractEventLoop, fired: Callable[[], None]) -> FineTimer:
    """The finest timer that there is."""
    try:
        return DescriptorTimer(loop, fired)
    except (OSError, AttributeError, NotImplementedError):  # AttributeError: a C library without the call
        return LoopTimer(loop, fired)
