"""JSON orders of 1 KB to typed columns: this project's option `payload` beside `from_json` in SQL, in one session of local[2].

    python benchmarks/spark/typed_payloads.py [--rows 100000] [--rounds 4]

Both read the same topic and add up the same fields. CPU is that of Spark's whole family (`family_meter`), the broker is none of it. The
first round of each warms up and does not count.

Rules of this file
1. The two take turns; both sums are compared in every round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from family_meter import FamilyMeter

import rigpath

sys.path.insert(0, str(rigpath.REPOSITORY / "tests" / "system"))

from server_process import ServedProcess

import orbitmq.sync
from orbitmq.client import Message

TOPIC: Final = "orders"
FIELDS: Final = (
    "id bigint, customer string, amount double, paid boolean, items array<struct<sku: string, n: int, price: double>>"
)
SUMS: Final = ("sum(p.id)", "sum(p.amount)", "sum(length(p.customer))", "sum(p.items[0].n)", "count_if(p.paid)")


def order(number: int) -> bytes:
    items = [{"sku": f"sku-{number % 977:06d}-{n}", "n": n + 1, "price": 9.25 + n, "note": "x" * 40} for n in range(6)]
    found = {
        "id": number,
        "customer": f"customer {number % 5000}",
        "amount": number * 0.25,
        "paid": number % 3 == 0,
        "items": items,
    }
    return json.dumps(found | {"comment": "y" * (1_024 - len(json.dumps(found)) - 16)}).encode()


def child(name_server: str, ways: list[str]) -> None:
    from orbitmq.spark import session

    spark = session("local[2]", **{"spark.ui.showConsoleProgress": "false"})
    read = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", TOPIC)
    for way in ways:
        print("begin", flush=True)
        sys.stdin.readline()
        if way == "payload":
            frame = read.schema(f"payload struct<{FIELDS}>, payloadError string").option("payload", "json").load()
            frame = frame.where("payloadError IS NULL").selectExpr("payload AS p")
        else:
            frame = (
                spark.read.format("orbitmq")
                .option("nameServer", name_server)
                .option("topic", TOPIC)
                .schema("body binary")
                .load()
            )
            frame = frame.selectExpr(f"from_json(CAST(body AS STRING), '{FIELDS}') AS p").where("p IS NOT NULL")
        print(json.dumps([float(value) for value in frame.selectExpr(*SUMS).first() or ()]), flush=True)
        sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--child")
    given = parser.parse_args()
    ways = ["payload", "from_json"] * (given.rounds + 1)
    if given.child:
        child(given.child, ways)
        return
    with tempfile.TemporaryDirectory() as place:
        server = ServedProcess(Path(place), settings={"mappedFileSizeCommitLog": 256 * 1024 * 1024})
        try:
            server.create_topic(TOPIC, 4)
            address = f"127.0.0.1:{server.name_port}"
            with orbitmq.sync.connect(address) as mq:
                for begin in range(0, given.rows, 500):
                    mq.send_batch(
                        TOPIC, [Message(body=order(number)) for number in range(begin, min(begin + 500, given.rows))]
                    )
            measure(address, ways, given.rows, sys.argv[1:])
        finally:
            server.kill()


def measure(address: str, ways: list[str], rows: int, arguments: list[str]) -> None:
    command = [sys.executable, __file__, *arguments, "--child", address]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    found: dict[str, list[float]] = {"payload": [], "from_json": []}
    sums = None
    with process, process.stdin, FamilyMeter(process.pid) as meter:
        for way in ways:
            assert process.stdout.readline().strip() == "begin"
            cpu_s, began_s = meter.cpu_s(), time.perf_counter()
            print(file=process.stdin, flush=True)
            said = json.loads(process.stdout.readline())
            cpu_s, wall_s = meter.cpu_s() - cpu_s, time.perf_counter() - began_s
            assert sums in (None, said), f"{way} has other sums: {said}, not {sums}"
            sums = said
            print(f"{way:10} {cpu_s / rows * 1e6:6.2f} us CPU a row, {wall_s:5.2f} s", flush=True)
            found[way].append(cpu_s)
            print(file=process.stdin, flush=True)
    ours, theirs = (statistics.median(found[way][1:]) for way in ("payload", "from_json"))
    print(f"payload {rows / ours:,.0f} rows a CPU-second, from_json {rows / theirs:,.0f}: {theirs / ours:.2f}x")


if __name__ == "__main__":
    main()
