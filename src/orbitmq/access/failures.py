"""Failed attempts to prove who calls: an address that goes on failing waits longer and longer.

Rules of this file
1. The answer to a failure waits; what is right is never slowed, from whatever address.
2. The table has a bound: the address that has not failed for longest is forgotten first.
3. All ports of a process count together: who tries passwords at one has fewer tries at the others.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from typing import NamedTuple

from orbitmq.clock import Clock
from orbitmq.limits.access import (
    FAILED_ADDRESSES_MAX,
    FAILURE_WAIT_MAX_MS,
    FAILURE_WAIT_MS,
    FAILURES_UNSLOWED_MAX,
    FAILURES_WITHIN_MS,
)
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.access")


class Failure(NamedTuple):
    """One more failure of an address: how many there were `lately`, and how long its answer waits."""

    lately: int
    wait_ms: int


class FailedAttempts:
    """The failures at all ports of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Where failures came from, and of each when the first of them was and their number; the latest to fail stands last."""

    def __len__(self) -> int:
        return len(self._known)

    def add(self, address: str) -> Failure:
        """Count a failure. Those within `FAILURES_WITHIN_MS` count together; once they are too many, until there is none for as long."""
        now_ns, place = self._clock.monotonic_ns(), _place(address)
        since_ns, count = self._known.pop(place, (now_ns, 0))
        if now_ns - since_ns > FAILURES_WITHIN_MS * NS_PER_MS:
            since_ns, count = now_ns, 0
        count += 1
        too_many = count - FAILURES_UNSLOWED_MAX
        self._known[place] = (now_ns if too_many >= 0 else since_ns, count)
        if len(self._known) > FAILED_ADDRESSES_MAX:
            self._known.popitem(last=False)
        return Failure(count, _wait_ms(too_many))

    def refused(self, request: int | str, address: str, why: str, known_name: str) -> int:
        """Count a failed request and say it in the log, seldom. How long its answer waits, in milliseconds. `request`: its code, or the
        name of an RPC. `known_name`: of the user that the request names, empty where there is none; a name that nobody has may be a secret
        that was put in the wrong place."""
        failure = self.add(address)
        if failure.lately in (1, FAILURES_UNSLOWED_MAX):
            logger.warning(
                "a request (%s) from %s%s is refused: %s%s",
                request if isinstance(request, str) else f"code {request}", address,
                f" that names user {known_name!r}" if known_name else "", why,
                "" if failure.lately == 1 else f"; {failure.lately} failed lately, the answers to more of them wait",
                extra={"event": "caller_unknown"},
            )  # fmt: skip
        return failure.wait_ms


def _wait_ms(too_many: int) -> int:
    if too_many <= 0:
        return 0
    return int(min(FAILURE_WAIT_MS << min(too_many - 1, FAILURE_WAIT_MAX_MS.bit_length()), FAILURE_WAIT_MAX_MS))


def _place(address: str) -> str:
    """What fails together: an IPv4 address, or a /64 network of IPv6, which one caller can have to itself."""
    if ":" not in address:
        return address
    try:
        read = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(read.ipv4_mapped or ipaddress.IPv6Network((int(read) >> 64 << 64, 64)))
