"""The process that keeps the far tier's files: reads requests from standard input, answers on standard output.

    python -m orbitmq.timing.far.file_server URL

pyarrow is imported here, where its second of start-up and its memory burden nobody else, and where a crash of native code ends
nobody else.

Rules of this file
1. It ends when its input ends: a broker that was killed leaves no process behind.
2. Nothing but frames goes to standard output.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import BinaryIO

from orbitmq.errors import ProtocolError
from orbitmq.timing.far.frames import (
    Answer,
    Compact,
    Find,
    Land,
    Open,
    Publish,
    Remove,
    Request,
    Sweep,
    TakeRows,
    decode_request,
    encode_frame,
    read_frame,
)
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError, Tier


def serve(tier: Tier, source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the input ends."""

    def read_exactly(size: int) -> bytes:
        data = source.read(size)
        if len(data) < size:
            raise EOFError
        return data

    while True:
        try:
            head, blob = read_frame(read_exactly)
        except EOFError:
            return
        target.write(answer(tier, head, blob))
        target.flush()


def answer(tier: Tier, head: bytes, blob: bytes) -> bytes:
    """The frame that answers a request."""
    try:
        value, data = perform(tier, decode_request(head), blob)
        return encode_frame(Answer(value), data)
    except FarFileDamagedError as error:
        return encode_frame(Answer(problem=str(error), kind=FarFileDamagedError.__name__, name=error.name))
    except (FarTierError, OSError, ProtocolError) as error:
        return encode_frame(Answer(problem=str(error), kind=FarUnreachableError.__name__))
    except Exception as error:  # told, with its kind; the broker tries again and reports it
        return encode_frame(Answer(problem=f"{type(error).__name__}: {error}", kind=FarTierError.__name__))


def perform(tier: Tier, request: Request, blob: bytes) -> tuple[object, bytes]:
    """Do what a request says: the value of the answer and its blob."""
    if isinstance(request, Open):
        return tier.open(), b""
    if isinstance(request, Land):
        return tier.land(request.name, blob), b""
    if isinstance(request, TakeRows):
        rows = tier.rows(request.name, request.start, request.until_ms, request.rows_max, request.bytes_max)
        return (rows.taken, rows.next_ms), rows.records
    if isinstance(request, Find):
        found = tier.find(request.files, request.query)
        return (found.sizes, found.more, found.damaged), found.records
    if isinstance(request, Compact):
        return tier.compact(request.files, request.dead, request.serial), b""
    if isinstance(request, Remove):
        tier.remove(request.names)
        return None, b""
    if isinstance(request, Sweep):
        return tier.sweep(request.known), b""
    assert isinstance(request, Publish)
    tier.publish(blob)
    return None, b""


def main(arguments: list[str], make: Callable[[str], Tier] | None = None) -> None:
    from orbitmq.timing.far.arrow_tier import ArrowTier

    (url,) = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the files of a year, each with its index
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no frame
    serve((make or ArrowTier)(url), sys.stdin.buffer, target)


if __name__ == "__main__":
    main(sys.argv[1:])
