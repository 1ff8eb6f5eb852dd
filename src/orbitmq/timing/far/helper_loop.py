"""The other end of a helper's pipes: read requests from standard input, answer on standard output, until the input ends.

Rules of this file
1. It ends when its input ends: a broker that was killed leaves no process behind.
2. Nothing but frames goes to standard output.
3. Every failure becomes an answer with its kind; the broker decides what it means.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import BinaryIO

from orbitmq.errors import ProtocolError
from orbitmq.timing.far.frames import Answer, encode_frame, read_frame
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError

Perform = Callable[[bytes, bytes], tuple[object, bytes]]
"""Does what a request (head, blob) says: the value of the answer and its blob."""


def converse(perform: Perform, source: BinaryIO, target: BinaryIO) -> None:
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
        try:
            target.write(answered(perform, head, blob))
            target.flush()
        except BrokenPipeError:  # nobody waits for the answer: the broker was killed
            return


def answered(perform: Perform, head: bytes, blob: bytes) -> bytes:
    """The frame that answers a request."""
    try:
        value, data = perform(head, blob)
        return encode_frame(Answer(value), data)
    except FarFileDamagedError as error:
        return encode_frame(Answer(problem=str(error), kind=FarFileDamagedError.__name__, name=error.name))
    except (FarTierError, OSError, ProtocolError) as error:
        return encode_frame(Answer(problem=str(error), kind=FarUnreachableError.__name__))
    except Exception as error:  # told, with its kind; the broker tries again and reports it
        return encode_frame(Answer(problem=f"{type(error).__name__}: {error}", kind=FarTierError.__name__))


def run(perform: Perform) -> None:
    """Converse over the process's own standard input and output."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the files of a year, each with its index
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no frame
    converse(perform, sys.stdin.buffer, target)
