"""What HTTP/2 costs for one signed SendMessage of gRPC, without a broker, a socket, or protobuf: processor time of the server's end.

    python benchmarks/http2_calls.py [--calls 20000] [--in-flight 64] [--rounds 5]

Every call has its own request id, date, signature and timeout, and headers as the Java client writes them; the body has 1 KB. `h2` answers
the same bytes in the same run. The figure is that of the best round: others measure the neighbours.
"""

from __future__ import annotations

import argparse
import struct
import time
import uuid
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
from hpack import Encoder

from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived
from orbitmq.protocol.http2.frames import PREFACE, AnswerFrames
from orbitmq.protocol.http2.hpack import encode

WINDOW = 2**31 - 1
BEGINNING = (
    PREFACE
    + struct.pack(">IBIHI", 6 << 8 | 4, 0, 0, 4, 1 << 30)
    + struct.pack(">IBII", 4 << 8 | 8, 0, 0, WINDOW - 65_535)
)
HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]
ANSWER = b"\0\0\0\0\x50" + bytes(80)
BODY = b"\0\0\0\4\0" + bytes(1_024)


def call_fields(number: int) -> list[tuple[bytes, bytes]]:
    second = number // 4_000
    return [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
        (b":authority", b"127.0.0.1:8081"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        (b"user-agent", b"grpc-java-netty/1.53.0"), (b"x-mq-client-id", b"host@1234@0@abcdef12"), (b"x-mq-language", b"JAVA"),
        (b"x-mq-client-version", b"5.2.0"), (b"x-mq-protocol", b"v2"), (b"x-mq-namespace", b""),
        (b"x-mq-request-id", str(uuid.uuid4()).encode()), (b"x-mq-date-time", b"20261122T1345%02dZ" % second),
        (b"authorization", b"MQv2-HMAC-SHA1 Credential=ak,SignedHeaders=x-mq-date-time,Signature=%040X" % (second * 0x9E3779B97F4A7C15)),
        (b"grpc-accept-encoding", b"gzip"), (b"grpc-timeout", b"%du" % (2_990_000 + number * 7_919 % 9_999)),
    ]  # fmt: skip


def turns(calls: int, in_flight: int) -> list[bytes]:
    """What a server reads at a time: as many calls as are in flight."""
    encoder = Encoder()
    frames = []
    for number in range(calls):
        block = encoder.encode(call_fields(number), huffman=False)
        head = struct.pack(">IBI", len(block) << 8 | 1, 4, 2 * number + 1)
        frames.append(head + block + struct.pack(">IBI", len(BODY) << 8, 1, 2 * number + 1) + BODY)
    return [b"".join(frames[at : at + in_flight]) for at in range(0, calls, in_flight)]


def ours(read: list[bytes]) -> int:
    connection = Http2Connection()
    connection.receive_data(BEGINNING)
    frames = AnswerFrames(encode(HEAD), encode(TRAILERS))
    answered = 0
    for data in read:
        for event in connection.receive_data(data):
            if type(event) is DataReceived:
                stream_id = event.stream_id
                connection.send_answer(stream_id, frames, ANSWER)
                answered += 1
        b"".join(connection.take_output())
    assert connection.stream_count == 0
    return answered


def theirs(read: list[bytes]) -> int:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    connection.increment_flow_control_window(1 << 22)
    connection.receive_data(BEGINNING)
    answered = 0
    for data in read:
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                connection.send_headers(event.stream_id, HEAD)
                connection.send_data(event.stream_id, ANSWER)
                connection.send_headers(event.stream_id, TRAILERS, end_stream=True)
                answered += 1
        connection.data_to_send()
    return answered


def microseconds(serve: Callable[[list[bytes]], int], read: list[bytes], rounds: int) -> float:
    """Processor time of one call in the best round."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        answered = serve(read)
        best = min(best, (time.process_time() - began) / answered)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    read = turns(options.calls, options.in_flight)
    mine = microseconds(ours, read, options.rounds)
    other = microseconds(theirs, read[: len(read) // 10], options.rounds)
    print(f"orbitmq {mine:.1f} us a call, h2 {other:.1f}, ratio {mine / other:.2f}")


if __name__ == "__main__":
    main()
