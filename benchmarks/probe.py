"""Wait until a broker accepts a send (SEND_MESSAGE_V2) and say how long that took; prints one JSON line.

usage: probe.py [--host H] [--port P] [--topic T] [--since EPOCH_MS] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.wire import Refused, Wire

PAUSE_S = 0.005


class FirstSend(NamedTuple):
    """Milliseconds since the given moment: connection accepted, first SEND_OK."""

    connect_ms: float
    send_ok_ms: float


def first_send(
    port: int, since_ms: float, *, host: str = "127.0.0.1", topic: str = "PROBE", limit_s: float = 300
) -> FirstSend:
    """Try until a send is answered SEND_OK. Raises TimeoutError with the last reason."""
    end, connected, why = time.time() + limit_s, 0.0, "never connected"
    while time.time() < end:
        try:
            with Wire(port, host, timeout_s=5) as wire:
                connected = connected or time.time() * 1000
                wire.create_topic(topic, 1)
                wire.send(topic, 0, b"probe", {"WAIT": "true"}, born_at=int(time.time() * 1000))
                return FirstSend(connected - since_ms, time.time() * 1000 - since_ms)
        except (OSError, ValueError, Refused) as error:
            why = repr(error)
        time.sleep(PAUSE_S)
    raise TimeoutError(f"no send accepted within {limit_s} s: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=10911)
    parser.add_argument("--topic", default="PROBE")
    parser.add_argument("--since", type=float, default=time.time() * 1000)
    parser.add_argument("--limit", type=float, default=300)
    options = parser.parse_args()
    found = first_send(options.port, options.since, host=options.host, topic=options.topic, limit_s=options.limit)
    print(json.dumps({"connect_ms": round(found.connect_ms), "first_send_ok_ms": round(found.send_ok_ms)}))


if __name__ == "__main__":
    main()
