"""Metrics of the process: its loop, its connections, its requests, its memory, its log.

Rules of this file
1. Everything is read from what the parts keep anyway.
2. A role is a label: `broker`, `nameserver`, and `grpc` for the broker's port of another protocol.
"""

from __future__ import annotations

import platform
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq import leaf
from orbitmq.clock import Clock, TrustedClock
from orbitmq.limits.server import HANDSHAKES_MAX
from orbitmq.protocol.grpc.call_tally import CallTally
from orbitmq.protocol.remoting.tally import Tally
from orbitmq.release import VERSION
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.listener import Listener
from orbitmq.server.monitoring.http_front import HttpFront
from orbitmq.server.process.turn import Turn
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.logs import BoundedHandler
from orbitmq.telemetry.metric import Family, Sample, by_label, one

SELF: Final = Path("/proc/self")


class WatchedRole(NamedTuple):
    """A role as its front end sees it. Its listeners share one `PortTraffic`. `defects()`: requests that failed by a defect
    of ours and were answered by the role itself."""

    name: str
    listeners: Sequence[Listener]
    tally: Tally | CallTally
    defects: Callable[[], int] = int


class ProcessMetrics:
    """The collector of what all roles share."""

    def __init__(
        self,
        turn: Turn,
        room: ConnectionRoom,
        front: HttpFront,
        rules: PortRules,
        log: BoundedHandler | None,
        clock: Clock,
        *,
        event_loop: str,
        wakeups: Callable[[], Mapping[str, int]],
    ) -> None:
        """`log` is None for a process that does not own its log, such as one inside a test."""
        self.roles: list[WatchedRole] = []
        self.registered: Callable[[], Mapping[str, bool]] = dict
        """Name server -> whether the last registration there succeeded."""
        self._turn = turn
        self._room = room
        self._front = front
        self._rules = rules
        self._log = log
        self._event_loop = event_loop
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._wakeups = wakeups

    def __call__(self) -> Iterator[Family]:
        yield from self._loop()
        yield from self._connections()
        yield from self._requests()
        yield from self._ports()
        yield from _memory()

    def _loop(self) -> Iterator[Family]:
        turn = self._turn
        build = (VERSION, platform.python_version(), leaf.DESCRIPTION, self._event_loop)
        yield Family(catalogue.BUILD, [Sample(build, 1)])
        yield one(catalogue.START_TIME, self._started_ms / 1_000)
        yield one(catalogue.LOOP_TURNS, turn.durations_us.buckets().scaled(1e-6))
        yield one(catalogue.LOOP_DELAY, turn.delays_us.buckets().scaled(1e-6))
        yield one(catalogue.LOOP_STALLS, turn.stalls)
        yield one(catalogue.TURN_FAILURES, turn.failures)
        yield by_label(catalogue.WAKEUPS, sorted(self._wakeups().items()))
        if isinstance(self._clock, TrustedClock):
            time = self._clock.time
            outcomes = [("believed", time.believed_count), ("ended", time.ended_count)]
            yield by_label(catalogue.CLOCK_JUMPS, outcomes)
            yield one(catalogue.CLOCK_JUMP, time.jump_ns / 1e9)
        line = turn.request_queue
        waiting = len(line)
        yield one(catalogue.LINE_WAITING, waiting)
        yield one(catalogue.LINE_BYTES, line.bytes_waiting)
        yield one(catalogue.LINE_LONGEST, line.longest)
        yield one(catalogue.LINE_REFUSED, line.refused)

    def _connections(self) -> Iterator[Family]:
        roles = [(role.name, role.listeners, role.listeners[0].traffic) for role in self.roles]
        open_now = [(name, sum(len(port.peers) for port in ports)) for name, ports, _ in roles]
        yield by_label(catalogue.CONNECTIONS, [*open_now, ("http", self._front.open_count)])
        yield one(catalogue.CONNECTIONS_MAX, self._room.open_max)
        yield Family(
            catalogue.CONNECTIONS_OPENED,
            [
                Sample((name, outcome), count)
                for name, _, traffic in roles
                for outcome, count in (
                    ("accepted", traffic.connections_accepted),
                    ("refused", traffic.connections_refused),
                    ("idle_closed", traffic.idle_closed),
                    ("slow_cut", traffic.slow_cut),
                )
            ],
        )
        yield by_label(catalogue.BAD_FRAMES, [(name, traffic.bad_frames) for name, _, traffic in roles])
        opening = self._rules.traffic
        yield by_label(catalogue.HANDSHAKES, [(what.value, count) for what, count in opening.counts.items()])
        yield one(catalogue.HANDSHAKES_OPEN, opening.under_way)
        yield one(catalogue.HANDSHAKES_OPEN_MAX, HANDSHAKES_MAX)
        if self._rules.certificate is not None:
            yield one(catalogue.CERTIFICATE_EXPIRY, self._rules.certificate.left_ms / 1_000)
        defects = [(role.name, role.listeners[0].traffic.handler_errors + role.defects()) for role in self.roles]
        yield by_label(catalogue.HANDLER_ERRORS, defects)
        yield by_label(catalogue.UNANSWERED, [(name, traffic.unanswered) for name, _, traffic in roles])
        yield by_label(catalogue.LATE_ANSWERS, [(name, traffic.late_answers) for name, _, traffic in roles])
        yield by_label(catalogue.HELD_BYTES, [(name, traffic.held_bytes) for name, _, traffic in roles])
        directions = [
            (name, direction, frames, size)
            for name, _, traffic in roles
            for direction, frames, size in (
                ("in", traffic.frames_in, traffic.bytes_in),
                ("out", traffic.frames_out, traffic.bytes_out),
            )
        ]
        yield Family(catalogue.FRAMES, [Sample((name, way), frames) for name, way, frames, _ in directions])
        yield Family(catalogue.BYTES, [Sample((name, way), size) for name, way, _, size in directions])

    def _requests(self) -> Iterator[Family]:
        roles = self.roles
        yield Family(
            catalogue.REQUESTS,
            [Sample((role.name, name), count) for role in roles for name, count in role.tally.handled_by_name()],
        )
        yield Family(
            catalogue.REQUEST_FAILURES,
            [Sample((role.name, name, code), n) for role in roles for name, code, n in role.tally.failures_by_name()],
        )
        yield by_label(catalogue.REQUESTS_UNSUPPORTED, [(role.name, role.tally.unsupported) for role in roles])

    def _ports(self) -> Iterator[Family]:
        registered = [(address, int(known)) for address, known in self.registered().items()]
        yield by_label(catalogue.REGISTERED, registered)
        traffic = self._front.traffic
        yield by_label(catalogue.HTTP_ANSWERS, [(str(status), n) for status, n in sorted(traffic.answers.items())])
        outcomes = [
            ("accepted", traffic.connections_accepted),
            ("refused", traffic.connections_refused),
            ("slow_cut", traffic.slow_cut),
            ("bad_request", traffic.bad_requests),
        ]
        yield by_label(catalogue.HTTP_CONNECTIONS, outcomes)
        if self._log is not None:
            yield by_label(catalogue.LOG_LINES, sorted(self._log.lines.items()))
            yield one(catalogue.LOG_LEFT_OUT, self._log.left_out)


def _memory() -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield one(catalogue.CPU, used.ru_utime + used.ru_stime)
    fields = dict(line.split(":", 1) for line in (SELF / "status").read_text().splitlines() if ":" in line)
    yield one(catalogue.RESIDENT, _kilobytes(fields.get("VmRSS", "")))
    yield one(catalogue.ANONYMOUS, _kilobytes(fields.get("RssAnon", "")))
    # The size of this directory is the number of its entries since Linux 6.2; before that it is 0.
    count = (SELF / "fd").stat().st_size or sum(1 for _ in (SELF / "fd").iterdir())
    yield one(catalogue.OPEN_FILES, count)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield one(catalogue.MAX_FILES, float("inf") if limit == resource.RLIM_INFINITY else limit)


def _kilobytes(text: str) -> int:
    number = text.split()
    return int(number[0]) * 1_024 if number else 0
