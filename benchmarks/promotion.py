"""A slave with many pending timers that is made master by a command: when it takes messages, and how late timers are.

usage: promotion.py [--pending 1000000] [--rounds 3] [--folder DIR] [--json FILE] [--write-docs]

A synchronous pair of orbitmq takes the pending timers, due between an hour and two days from then, and timers that fall due one after the
other over the time of the fault. The master is killed; some seconds later the slave is asked to become the master, and sends are tried at
it without a pause. Needs a C compiler for the load generator.

Rules of this file
1. Times begin with the request (PROMOTE_SLAVE), not with the fault: how long a person takes is not measured.
2. A timer that fell due while nobody led is late by as much in any case: what counts is how long after the request it is in its topic.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import JvmProfile, Kind
from rig.pairs import Member, Pair, send, until
from rig.toolchain import Missing, cache_folder, load_generator
from rig.wire import Refused, encode_properties, send_fields

from copies_measure import PATIENT, ROLES, loaded
from measure import Invalid, Numbers
from table import machine, verdict, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "copies-benchmark.md"
MANY, SOON, PLAIN = "MANY", "SOON", "PLAIN"
PENDING, ROUNDS = 1_000_000, 3
FIRST_MS, SPREAD_MS = 3_600_000, 172_800_000
AWAY_S: Final = 5.0
"""From the fault to the request."""

DUE_EVERY_MS, DUE_COUNT, DUE_FROM_MS = 10, 2_500, 5_000
"""Timers that fall due from before the fault to long after the promotion."""

SEND_V2, PROMOTE_SLAVE = 310, 20061
SEND_OK_S_MAX, LATE_S_MAX = 0.5, 1.0
QUEUED_LIMIT_S: Final = 600.0
SETTLED_LIMIT_S: Final = 60.0


class Promotion:
    """One round: a pair of its own."""

    def __init__(self, folder: Path, pending: int) -> None:
        self._pending = pending
        self._generator = load_generator()
        self._pair = Pair(folder, Kind.ORBITMQ, Kind.ORBITMQ, profile=JvmProfile.MEASURE)
        self._tried: list[tuple[float, bool]] = []
        """When a send was answered at the slave, and whether it was taken."""
        self._is_over = threading.Event()

    def close(self) -> None:
        self._is_over.set()
        self._pair.kill()

    def run(self) -> Numbers:
        """Figures in milliseconds. Raises `Invalid` where something is lost or early."""
        pair = self._pair
        pair.first.launch_master(**PATIENT, **ROLES["sync"]).wait()
        pair.second.launch_slave(**PATIENT).wait()
        with pair.first.wire() as wire:
            for topic, queues in ((MANY, 8), (SOON, 1), (PLAIN, 1)):
                wire.create_topic(topic, queues)
        numbers = iter(range(10_000))
        until(lambda: send(pair.first, PLAIN, b"%d" % next(numbers)) == 0, "a send that the pair takes", 120)
        filled_s = self._fill()
        due = self._send_due()
        time.sleep(max(min(due.values()) / 1000 + 1.0 - time.time(), 0))
        load = os.getloadavg()[0]
        pair.first.kill()
        killed_ms = time.time() * 1000
        time.sleep(AWAY_S)
        trying = threading.Thread(target=self._try_sends)
        trying.start()
        asked_s, answered_s = self._promote()
        until(lambda: any(is_taken for _, is_taken in self._tried), "a send that the new master takes", SETTLED_LIMIT_S)
        taken_s = next(at for at, is_taken in self._tried if is_taken)
        self._is_over.set()
        trying.join()
        stored = self._stored(due)
        meanwhile = [stored[body] - asked_s * 1000 for body, at in due.items() if killed_ms <= at <= asked_s * 1000]
        later = [stored[body] - at for body, at in due.items() if at > asked_s * 1000]
        return {
            "filled_s": filled_s,
            "answer_ms": (answered_s - asked_s) * 1000,
            "send_ok_ms": (taken_s - asked_s) * 1000,
            "meanwhile": len(meanwhile),
            "meanwhile_p50_ms": percentile(meanwhile, 50),
            "meanwhile_p99_ms": percentile(meanwhile, 99),
            "later_p99_ms": percentile(later, 99),
            "load1": load,
        }

    def _fill(self) -> float:
        words = ["--topic", MANY, "--count", self._pending, "--conns", 4, "--window", 64, "--size", 128]
        words += ["--deliver-ms-from-now", FIRST_MS, "--spread-ms", SPREAD_MS, "--warmup", 0]
        began = time.monotonic()
        loaded([self._generator, "--port", self._pair.first.port, *words], self._pair.logs)
        pair = self._pair
        until(lambda: _end(pair.second) == pair.first.log_end(), "the slave having all", QUEUED_LIMIT_S)
        return time.monotonic() - began

    def _send_due(self) -> dict[bytes, int]:
        """Due time by body."""
        first = int(time.time() * 1000) + DUE_FROM_MS
        due = {b"due-%d" % number: first + number * DUE_EVERY_MS for number in range(DUE_COUNT)}
        with self._pair.first.wire() as wire:
            for body, at in due.items():
                values = {"UNIQ_KEY": f"KEY{body.decode()}", "WAIT": "true", "TIMER_DELIVER_MS": str(at)}
                head, _ = wire.ask(SEND_V2, send_fields(SOON, 0, 0, encode_properties(values)), body)
                if head["code"]:
                    raise Invalid(f"a timer was answered {head['code']}: {head.get('remark')}")
        return due

    def _try_sends(self) -> None:
        with self._pair.second.wire() as wire:
            number = 0
            while not self._is_over.is_set():
                number += 1
                values = {"UNIQ_KEY": f"TRY{number}", "WAIT": "true"}
                head, _ = wire.ask(SEND_V2, send_fields(PLAIN, 0, 0, encode_properties(values)), b"a try")
                self._tried.append((time.time(), int(head["code"]) == 0))
                self._is_over.wait(0.002)

    def _promote(self) -> tuple[float, float]:
        """When the request was made, and when it was answered."""
        with self._pair.second.wire() as wire:
            asked = time.time()
            wire.call(PROMOTE_SLAVE, {}, b"{}")
            return asked, time.time()

    def _stored(self, due: dict[bytes, int]) -> dict[bytes, int]:
        """When each of the timers that fell due was stored in its topic."""
        last_s = max(due.values()) / 1000 - time.time()
        until(lambda: len(self._soon()) >= len(due), "all that falls due", max(last_s, 0) + SETTLED_LIMIT_S)
        found = self._soon()
        stored = dict(found)
        if stored.keys() != due.keys() or len(found) != len(due):
            raise Invalid(f"{len(found)} timers came, {len(stored)} different ones of {len(due)}")
        if early := [body for body, at in stored.items() if at < due[body]]:
            raise Invalid(f"{len(early)} timers came early, such as {early[0]!r}")
        return stored

    def _soon(self) -> list[tuple[bytes, int]]:
        with self._pair.second.wire() as wire:
            return [(record.body, record.store_at) for record in wire.read_queue(SOON, 0)]


def _end(member: Member) -> int:
    try:
        return member.log_end()
    except Refused:
        return 0


def percentile(values: Sequence[float], of_hundred: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) * of_hundred // 100, len(ordered) - 1)] if ordered else 0.0


def table(rounds: Sequence[Numbers], pending: int) -> str:
    """The worst round counts where something is to be reached."""

    def shown(key: str) -> tuple[str, str, float]:
        values = [numbers[key] for numbers in rounds]
        return f"{statistics.median(values):,.0f} ms", f"{max(values):,.0f} ms", max(values)

    rows = [
        ("answer to the command", "answer_ms", None),
        ("first SEND_OK after the command", "send_ok_ms", SEND_OK_S_MAX),
        ("timer due while nobody led, in its topic after the command: median", "meanwhile_p50_ms", None),
        ("timer due while nobody led, in its topic after the command: p99", "meanwhile_p99_ms", LATE_S_MAX),
        ("timer due afterwards, lateness: p99", "later_p99_ms", None),
    ]
    lines = [
        f"| promotion with {pending:,} timers pending | median | worst round | to reach |",
        "| --- | ---: | ---: | ---: |",
    ]
    for what, key, most_s in rows:
        median, worst, worst_ms = shown(key)
        goal = "-" if most_s is None else f"{most_s:g} s{verdict(worst_ms <= most_s * 1000)}"
        lines.append(f"| {what} | {median} | {worst} | {goal} |")
    loads = ", ".join(f"{numbers['load1']:.1f}" for numbers in rounds)
    lines += [
        "",
        f"{len(rounds)} rounds with a pair each, {AWAY_S:g} s between the fault and the command, {rounds[0]['meanwhile']:.0f} timers due "
        f"while nobody led. {time.strftime('%d %b %Y')}, {machine()}. Load average at the faults {loads}. Made by "
        "`benchmarks/promotion.py`.",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=int, default=PENDING, help=f"timers that wait ({PENDING})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"pairs that are promoted ({ROUNDS})")
    parser.add_argument("--folder", type=Path, help="where the stores go, up to 3 GB (default: beside the build cache)")
    parser.add_argument("--json", type=Path, help="write all figures of all rounds there")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="promotion-", dir=options.folder or cache_folder()))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rounds: list[Numbers] = []
    try:
        for number in range(options.rounds):
            promotion = Promotion(folder / f"round-{number}", options.pending)
            try:
                rounds.append(promotion.run())
            finally:
                promotion.close()
            shutil.rmtree(folder / f"round-{number}", ignore_errors=True)
            say(" ".join(f"{name}={value:.4g}" for name, value in rounds[-1].items()))
    except (Missing, Invalid, AssertionError) as error:
        say(f"the benchmark stops: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))
    text = table(rounds, options.pending)
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "promotion")
    return 0


if __name__ == "__main__":
    sys.exit(main())
