"""Run one of the compared brokers in the foreground, for measuring by hand with the single tools.

usage: foreground.py java|orbitmq --folder DIR [--nameserver-port N] [--broker-port M] [--set KEY=VALUE ...]
Prints ports and process ids as one JSON line when a first send is accepted; SIGINT or SIGTERM stops orderly.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from pathlib import Path

import rigpath  # noqa: F401

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.process import free_ports

import probe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", type=Kind, choices=list(Kind))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nameserver-port", type=int)
    parser.add_argument("--broker-port", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    names, port = free_ports()
    ports = (options.nameserver_port or names, options.broker_port or port)
    settings = dict(word.split("=", 1) for word in options.set)
    broker = BrokerUnderTest(options.kind, options.folder, settings=settings, ports=ports, profile=JvmProfile.MEASURE)
    begin = time.time() * 1000
    asked_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked_to_stop.set())
    broker.launch()
    first = probe.first_send(broker.broker_port, begin)
    known = {
        "nameserver": broker.name_server,
        "broker_port": broker.broker_port,
        "pids": broker.pids(),
        "data": str(broker.data),
    }
    print(json.dumps({**known, "first_send_ok_ms": round(first.send_ok_ms)}), flush=True)
    asked_to_stop.wait()
    print(json.dumps({"stop_s": round(broker.stop(), 2)}), flush=True)


if __name__ == "__main__":
    main()
