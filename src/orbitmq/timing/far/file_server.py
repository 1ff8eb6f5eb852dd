"""The process that keeps the far tier's files: reads calls from standard input, answers on standard output.

    python -m orbitmq.timing.far.file_server URL

pyarrow is imported here, where its second of start-up and its memory burden nobody else, and where a crash of native code ends
nobody else. A frame is a length (4 bytes, big-endian) and a struct as MessagePack: the broker sends a `Call`, the process an `Answer`,
one at a time. The calls are the methods of `Tier`, with the types of arguments and answers that stand there.

Rules of this file
1. The process ends when its input ends: a broker that was killed leaves none behind.
2. Nothing but frames goes to standard output.
3. Every failure becomes an answer with its kind; the broker decides what it means.
4. A length beyond the limit, an end of the stream within a frame, a frame that cannot be understood end the conversation.
"""

from __future__ import annotations

import os
import resource
import sys
from struct import Struct
from typing import Any, BinaryIO, Final, get_type_hints

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.far import FAR_FRAME_BYTES_MAX, FAR_OPEN_FILES_MAX
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError, Tier

_LENGTH: Final = Struct(">I")
_TUPLE: Final[Any] = tuple


class Call(msgspec.Struct):
    method: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, omit_defaults=True):
    """The answer to a call. With `problem` set the call failed, and `kind` names the error class."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    problem: str | None = None
    kind: str = ""
    name: str = ""
    """The damaged file."""


def encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def encode_frame(content: Call | Answer) -> bytes:
    """Raises ProtocolError when it is too long for one frame."""
    data = msgspec.msgpack.encode(content)
    if len(data) > FAR_FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {len(data)} bytes is longer than {FAR_FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(data)) + data


def read_frame(source: BinaryIO) -> bytes:
    """The content of the next frame. Raises EOFError where the stream ends, and ProtocolError."""
    (size,) = _LENGTH.unpack(_read_exactly(source, _LENGTH.size))
    if size > FAR_FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame says it has {size} bytes, the limit is {FAR_FRAME_BYTES_MAX}")
    return _read_exactly(source, size)


def _read_exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def answered(tier: Tier, content: bytes) -> Answer:
    """Do what a call says. Raises MsgspecError when it says nothing that can be understood."""
    call = msgspec.msgpack.decode(content, type=Call)
    types = get_type_hints(getattr(Tier, call.method))
    del types["return"]
    arguments = msgspec.msgpack.decode(call.arguments, type=_TUPLE[tuple(types.values())])
    try:
        return Answer(encoded(getattr(tier, call.method)(*arguments)))
    except FarFileDamagedError as error:
        return Answer(problem=str(error), kind=FarFileDamagedError.__name__, name=error.name)
    except (FarTierError, OSError) as error:
        return Answer(problem=str(error), kind=FarUnreachableError.__name__)
    except Exception as error:  # answered with its kind; the broker tries again and reports it
        return Answer(problem=f"{type(error).__name__}: {error}", kind=FarTierError.__name__)


def serve(tier: Tier, source: BinaryIO, target: BinaryIO) -> None:
    """Answer calls until the input ends."""
    while True:
        try:
            content = read_frame(source)
        except EOFError:
            return
        answer = answered(tier, content)
        try:
            frame = encode_frame(answer)
        except ProtocolError as error:
            frame = encode_frame(Answer(problem=str(error), kind=FarUnreachableError.__name__))
        try:
            target.write(frame)
            target.flush()
        except BrokenPipeError:  # nobody waits for the answer: the broker was killed
            return


def main(arguments: list[str]) -> None:
    from orbitmq.timing.far.arrow_tier import ArrowTier

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the files of a year, each with its index
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no frame
    (url,) = arguments
    open_max = FAR_OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most // 2, FAR_OPEN_FILES_MAX)
    serve(ArrowTier(url, open_max=open_max), sys.stdin.buffer, target)


if __name__ == "__main__":
    main(sys.argv[1:])
