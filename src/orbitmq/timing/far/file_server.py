"""The process that keeps the far tier's files: reads requests from standard input, answers on standard output.

    python -m orbitmq.timing.far.file_server URL

pyarrow is imported here, where its second of start-up and its memory burden nobody else, and where a crash of native code ends
nobody else.

Rules of this file
1. As in `helper_loop`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from orbitmq.timing.far.frames import (
    Check,
    Compact,
    Find,
    Land,
    MakeIndex,
    Open,
    Probe,
    Publish,
    Remove,
    Request,
    SalvageFile,
    Sweep,
    TakeRows,
    decode_request,
)
from orbitmq.timing.far.helper_loop import answered, converse, run
from orbitmq.timing.far.tier import Tier


def serve(tier: Tier, source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the input ends."""
    converse(partial(_perform, tier), source, target)


def answer(tier: Tier, head: bytes, blob: bytes) -> bytes:
    """The frame that answers a request."""
    return answered(partial(_perform, tier), head, blob)


def _perform(tier: Tier, head: bytes, blob: bytes) -> tuple[object, bytes]:
    return perform(tier, decode_request(head), blob)


def perform(tier: Tier, request: Request, blob: bytes) -> tuple[object, bytes]:
    """Do what a request says: the value of the answer and its blob."""
    if isinstance(request, Open):
        return tier.open(), b""
    if isinstance(request, Land):
        return tier.land(request.name, blob), b""
    if isinstance(request, TakeRows):
        rows = tier.rows(request.file, request.until_ms, request.rows_max, request.bytes_max)
        return (rows.taken, rows.next_ms), rows.records
    if isinstance(request, Find):
        found = tier.find(request.files, request.query)
        return (found.sizes, found.more, found.damaged), found.records
    if isinstance(request, Compact):
        return tier.compact(request.files, request.dead, request.serial), b""
    if isinstance(request, MakeIndex):
        return tier.index(request.files, request.serial), b""
    if isinstance(request, SalvageFile):
        return tier.salvage(request.file, request.ranges, request.dead, request.serial), b""
    if isinstance(request, Remove):
        tier.remove(request.names)
        return None, b""
    if isinstance(request, Sweep):
        return tier.sweep(request.known, request.loads_before_ms), b""
    if isinstance(request, Check):
        return tier.check(request.file), b""
    if isinstance(request, Probe):
        tier.probe(request.name, request.content)
        return None, b""
    assert isinstance(request, Publish)
    tier.publish(blob)
    return None, b""


def main(arguments: list[str], make: Callable[[str], Tier] | None = None) -> None:
    from orbitmq.timing.far.arrow_tier import ArrowTier

    (url,) = arguments
    run(partial(_perform, (make or ArrowTier)(url)))


if __name__ == "__main__":
    main(sys.argv[1:])
