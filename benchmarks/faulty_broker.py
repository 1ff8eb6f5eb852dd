"""A deliberately wrong broker in memory: proves that the lateness meter sees faults.

usage: faulty_broker.py PORT FAULT      FAULT: none | early | dup | missing | crc | late; every tenth message has it
A meter that sends N messages must report N/10 early, duplicate, missing or damaged ones, or a p99 about 700 ms up.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
import zlib

import rigpath  # noqa: F401

# isort: split
from rig.wire import PULL, SEND_V2, parse_header

EARLY_S, LATE_S = -0.3, 0.7
BATCH = 32
NOT_FOUND = 19


class FaultyBroker:
    """Answers sends and pulls well enough for the meter, with one fault in every tenth message."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._queues: dict[tuple[str, int], list[bytes]] = {}
        self._total = 0
        self._pulls: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size, mark = struct.unpack(">iI", await reader.readexactly(8))
                data, head_size = await reader.readexactly(size - 4), mark & 0xFFFFFF
                head = parse_header(data[:head_size], mark >> 24)
                fields, opaque = head.get("extFields", {}), head["opaque"]
                if head["code"] == SEND_V2:
                    self._accept(fields, data[head_size:])
                    writer.write(_response(opaque, 0, {"msgId": "0", "queueId": fields["e"], "queueOffset": "0"}))
                elif head["code"] == PULL:
                    task = asyncio.ensure_future(self._pull(writer, opaque, fields))
                    self._pulls.add(task)
                    task.add_done_callback(self._pulls.discard)
                else:
                    writer.write(_response(opaque, 0, {"ok": "1"}))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the meter has gone; nothing is owed to it

    def _accept(self, fields: dict[str, str], body: bytes) -> None:
        self._total += 1
        nth, faulty = self._total, self._total % 10 == 0
        properties = dict(pair.split("\x01") for pair in fields["i"].split("\x02") if pair)
        timed = "TIMER_DELIVER_MS" in properties
        wait = int(properties["TIMER_DELIVER_MS"]) / 1000 - time.time() if timed else float("DELAY" in properties)
        if faulty:
            wait += {"early": EARLY_S, "late": LATE_S}.get(self._fault, 0.0)
        if not (faulty and self._fault == "missing"):
            asyncio.get_running_loop().call_later(max(0.0, wait), self._store, fields, body, nth)

    def _store(self, fields: dict[str, str], body: bytes, nth: int) -> None:
        queue_id, topic = int(fields["e"]), fields["b"].encode()
        queue, faulty = self._queues.setdefault((fields["b"], queue_id), []), nth % 10 == 0
        crc = zlib.crc32(body) & 0x7FFFFFFF ^ (self._fault == "crc" and faulty)
        for _ in range(2 if self._fault == "dup" and faulty else 1):
            rest = struct.pack(
                ">IiiiqqiqIiqIiiqi",
                *(
                    0xDAA320A7,
                    crc,
                    queue_id,
                    0,
                    len(queue),
                    0,
                    0,
                    int(fields["g"]),
                    0,
                    0,
                    int(time.time() * 1000),
                    0,
                    0,
                    0,
                    0,
                    len(body),
                ),
            )
            rest += body + bytes([len(topic)]) + topic + struct.pack(">h", 0)
            queue.append(struct.pack(">i", len(rest) + 4) + rest)

    async def _pull(self, writer: asyncio.StreamWriter, opaque: int, fields: dict[str, str]) -> None:
        queue, offset = (
            self._queues.setdefault((fields["topic"], int(fields["queueId"])), []),
            int(fields["queueOffset"]),
        )
        for _ in range(200):
            if len(queue) > offset:
                break
            await asyncio.sleep(0.005)
        part = queue[offset : offset + BATCH]
        answer = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(offset + len(part)),
            "minOffset": "0",
            "maxOffset": str(len(queue)),
        }
        writer.write(_response(opaque, 0 if part else NOT_FOUND, answer, b"".join(part)))


def _response(opaque: int, code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "extFields": fields, "flag": 1, "language": "JAVA", "opaque": opaque, "version": 479}
    head = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


async def main() -> None:
    async with await asyncio.start_server(FaultyBroker(sys.argv[2]).serve, "127.0.0.1", int(sys.argv[1])) as server:
        print("serving", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
