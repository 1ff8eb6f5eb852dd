"""Ports on which tests listen: in a row, free, and below those that Linux takes for outgoing connections.

A port that the system chose ("0") can be taken by an outgoing connection between the moment that it is found free and the moment that the
program under test listens there. Each worker of the test run has a lane of its own, apart from the ports of `tests/interop/rig`.
"""

from __future__ import annotations

import os
import random
import socket
from typing import Final

LANES: Final = 4
LANE: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % LANES
LANE_PORTS: Final = 2_000
PORTS: Final = range(12_000 + LANE_PORTS * LANE, 12_000 + LANE_PORTS * (LANE + 1))
ATTEMPTS: Final = 200


def ports_in_a_row(count: int) -> range:
    """`count` free ports, one after the other. OSError when none were found."""
    for _ in range(ATTEMPTS):
        start = random.SystemRandom().randrange(PORTS.start, PORTS.stop - count)
        row = range(start, start + count)
        if all(map(is_free, row)):
            return row
    raise OSError(f"found no {count} free ports in a row in {PORTS}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
