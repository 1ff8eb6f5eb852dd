"""One remoting frame: bytes to `Command` and back.

    length int32 | mark int32 (8 bits serialize type, 24 bits header length) | header | body

`length` counts what follows it. A header is JSON (type 0) or RocketMQ's binary form (type 1); both carry the same
members. (RocketMQ remoting, frame layout and header fields.)

Rules of this file
1. Reading is tolerant where Java is: any key order, unknown keys, numbers and booleans as ext values (kept as their
   text), nulls, a missing or unknown language, a line feed after the JSON. Duplicate keys: the last one wins.
2. The common case is one typed msgspec call; the tolerant reading runs only when that call refuses the header.
3. Writing is strict: ext values are strings, members stand in alphabetical order as Java writes them.
4. What cannot be understood raises `FrameError` that says what is wrong and where. Nothing else escapes.
5. A binary code is an int16: the codes above 32767 arrive cut (200050 as 3442) and stay as read.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from sys import getsizeof
from typing import Annotated, Final, NoReturn

import msgspec

from orbitmq.errors import FrameError, ProtocolError
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.versions import LANGUAGE_ORDINALS, LANGUAGES, OUR_VERSION, Language

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

PREFIX_BYTES: Final = 8
"""Length field and header mark."""

HEADER_MASK: Final = 0xFF_FFFF
"""The header length has 24 bits in the mark."""

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

_COMMAND_BYTES: Final = 256
"""The command itself, its numbers, its place where it waits."""

_PACKED_BYTES: Final = 192
"""A packed command without its texts and its body, and its place where it waits."""

_NUMBER_CHARS_MAX: Final = 40
"""More than any 64-bit number has, even with leading zeros; longer texts are no numbers."""

Buffer = bytes | bytearray | memoryview
_Int32 = Annotated[int, msgspec.Meta(ge=_INT32_MIN, le=_INT32_MAX)]


class Serialize(IntEnum):
    """How a header is written; the top byte of the header mark."""

    JSON = 0
    BINARY = 1


class Command(msgspec.Struct, gc=False):
    """A request or a response.

    `fields` are the ext fields. `has_fields` tells an absent `extFields` from an empty one; a binary header cannot
    (length 0 counts as absent). `language` is None when the sender named one that is not known. `gc=False` holds
    because nothing in a command can refer back to it: keep it so.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: Language | None = Language.JAVA
    version: int = OUR_VERSION
    remark: str | None = None
    fields: dict[str, str] = {}
    has_fields: bool = False
    body: Buffer = b""
    serialize: Serialize = Serialize.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """The sender wants no answer, not even an error."""
        return self.flag & FLAG_ONEWAY != 0

    @property
    def memory_bytes(self) -> int:
        """About what it takes while it is kept: four times its frame for an ordinary pull, ten times for many tiny fields."""
        fields = self.fields
        texts = sum(map(getsizeof, fields)) + sum(map(getsizeof, fields.values())) + getsizeof(self.remark)
        return _COMMAND_BYTES + getsizeof(fields) + texts + len(self.body)

    def text(self, name: str, default: str = "") -> str:
        """Ext field `name`, or `default` when it is absent."""
        return self.fields.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        """Ext field `name` as a Java `long`. Absent, no number or out of range: `default`, as Java reads it."""
        value = self.optional_integer(name)
        return default if value is None else value

    def int32(self, name: str, default: int = 0) -> int:
        """Ext field `name` as a Java `int`. Use it for everything that goes into a 4-byte place of a record."""
        text = self.fields.get(name)
        if text is not None and len(text) < 10 and text.isdecimal():
            return int(text)  # nearly always: no sign, and too short to be out of range
        value = self.optional_integer(name)
        return default if value is None or not _INT32_MIN <= value <= _INT32_MAX else value

    def optional_integer(self, name: str) -> int | None:
        """As `integer`, but None where a default would be taken: for checks that must see a missing field."""
        text = self.fields.get(name)
        if text is None or len(text) > _NUMBER_CHARS_MAX:
            return None
        if not (text.isdecimal() or (text[:1] in ("-", "+") and text[1:].isdecimal())):
            return None
        value = int(text)
        return value if _INT64_MIN <= value <= _INT64_MAX else None

    def boolean(self, name: str, default: bool = False) -> bool:
        """Ext field `name`: `true` in any case is true, every other text false, absent is `default`."""
        text = self.fields.get(name)
        return default if text is None else text == "true" or text.lower() == "true"


class PackedCommand(msgspec.Struct, gc=False):
    """A command that is kept for a while: one piece of bytes instead of a text for each name and value of its fields."""

    head: bytes
    body: Buffer

    @classmethod
    def of(cls, command: Command) -> PackedCommand:
        """Raises UnicodeEncodeError for texts that have no UTF-8 form. The body is kept, not copied."""
        c = command
        head = (c.code, c.opaque, c.flag, c.language, c.version, c.remark, c.fields, c.has_fields, c.serialize)
        return cls(_pack_head(head), c.body)

    @property
    def memory_bytes(self) -> int:
        """About what it takes while it is kept."""
        return _PACKED_BYTES + len(self.head) + len(self.body)

    def unpacked(self) -> Command:
        """The command as it was."""
        code, opaque, flag, language, version, remark, fields, has_fields, serialize = _unpack_head(self.head)
        return Command(code, opaque, flag, language, version, remark, fields, has_fields, self.body, serialize)


_Head = tuple[int, int, int, Language | None, int, str | None, dict[str, str], bool, Serialize]
_pack_head = msgspec.msgpack.Encoder().encode
_unpack_head = msgspec.msgpack.Decoder(_Head).decode


def request(
    code: int,
    fields: dict[str, str] | None = None,
    body: Buffer = b"",
    *,
    oneway: bool = False,
    opaque: int = 0,
    remark: str | None = None,
    language: Language = Language.JAVA,
    version: int = OUR_VERSION,
) -> Command:
    """A request of ours. `opaque` comes from `Connection.next_opaque`; `fields` is kept, not copied."""
    return Command(
        code,
        opaque,
        FLAG_ONEWAY if oneway else 0,
        language,
        version,
        remark,
        {} if fields is None else fields,
        fields is not None,
        body,
    )


def response(
    to: Command,
    code: int,
    remark: str | None = None,
    fields: dict[str, str] | None = None,
    body: Buffer = b"",
) -> Command:
    """The answer to `to`: same opaque, response bit, JSON header. `fields` is kept, not copied.

    Some clients read the ext fields of an answer unconditionally: give at least one field, or `{}`, wherever the
    answer has a header type.
    """
    return Command(
        code,
        to.opaque,
        FLAG_RESPONSE,
        Language.JAVA,
        OUR_VERSION,
        remark,
        {} if fields is None else fields,
        fields is not None,
        body,
    )


# --- decoding -----------------------------------------------------------------------------------------------------

_PREFIX = struct.Struct(">iI")
_pack_prefix = _PREFIX.pack


class _JsonHeader(msgspec.Struct, gc=False):
    """A header as every official client writes it."""

    code: _Int32
    opaque: _Int32 = 0
    flag: _Int32 = 0
    language: Language | None = Language.JAVA
    version: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_json_header = msgspec.json.Decoder(_JsonHeader).decode
_decode_any = msgspec.json.Decoder(strict=True).decode


def check_prefix(
    length: int, mark: int, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_MASK
) -> int:
    """Header length of a frame with these first two words; raises FrameError where they cannot belong to one."""
    if not 4 <= length <= frame_bytes_max - 4:
        if length < 4:
            raise FrameError(f"frame length {length} at byte 0: a frame has at least the 4 bytes of its header mark")
        raise FrameError(
            f"frame length {length} at byte 0 is over the limit of {frame_bytes_max - 4} bytes",
            remedy="the peer sends too much at once, or does not speak the remoting protocol",
        )
    if mark >> 24 > 1:
        raise FrameError(f"unknown serialize type {mark >> 24} in the header mark at byte 4")
    header_length = mark & HEADER_MASK
    if header_length > length - 4:
        raise FrameError(f"header of {header_length} bytes at byte 8 is longer than its frame of {length + 4} bytes")
    if header_length > header_bytes_max:
        raise FrameError(f"header of {header_length} bytes at byte 8 is over the limit of {header_bytes_max} bytes")
    return header_length


def decode(frame: Buffer) -> Command:
    """The command of one whole frame, length field included. The body is a copy and safe to keep.

    Raises FrameError, also when `frame` holds less or more than one frame.
    """
    if len(frame) < PREFIX_BYTES:
        raise FrameError(f"frame of {len(frame)} bytes is shorter than the {PREFIX_BYTES} bytes of length and mark")
    length, mark = _PREFIX.unpack_from(frame)
    end = PREFIX_BYTES + check_prefix(length, mark)
    if length + 4 != len(frame):
        raise FrameError(f"length field says {length} bytes follow it, but {len(frame) - 4} do")
    return decode_parts(mark, bytes(frame[PREFIX_BYTES:end]), bytes(frame[end:]))


def decode_parts(mark: int, header: bytes, body: bytes) -> Command:
    """As `decode`, for a frame already cut at the places its checked prefix names. Copies nothing."""
    if mark >> 24:
        return _decode_binary(header, body)
    try:
        head = _decode_json_header(header)
    except msgspec.ValidationError:
        head = _decode_tolerant(header)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        _refuse_json(error)
    fields = head.extFields
    if fields is None:
        return Command(
            head.code, head.opaque, head.flag, head.language, head.version, head.remark, {}, False, body, Serialize.JSON
        )
    return Command(
        head.code, head.opaque, head.flag, head.language, head.version, head.remark, fields, True, body, Serialize.JSON
    )


def _refuse_json(error: Exception) -> NoReturn:
    raise FrameError(f"JSON header at byte {PREFIX_BYTES} cannot be read: {error}") from error


def _decode_tolerant(header: bytes) -> _JsonHeader:
    """A header of valid JSON that is not typed as Java would type it."""
    try:
        value = _decode_any(header)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        _refuse_json(error)
    if not isinstance(value, dict):
        raise FrameError(f"JSON header at byte {PREFIX_BYTES} is not an object")
    if "code" not in value:
        raise FrameError(f"JSON header at byte {PREFIX_BYTES} has no code")
    remark = value.get("remark")
    fields = value.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise FrameError(f"extFields in the JSON header at byte {PREFIX_BYTES} is not an object")
    return _JsonHeader(
        _int32_member(value, "code"),
        _int32_member(value, "opaque"),
        _int32_member(value, "flag"),
        _language_member(value.get("language", Language.JAVA)),
        _int32_member(value, "version"),
        None if remark is None else _ext_text(remark),
        None if fields is None else {name: _ext_text(item) for name, item in fields.items() if item is not None},
    )


def _int32_member(header: dict[str, object], name: str) -> int:
    value = header.get(name)
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= 11:
        try:
            value = int(value)
        except ValueError:
            value = None
    if type(value) is not int or not _INT32_MIN <= value <= _INT32_MAX:
        raise FrameError(f"member {name} of the JSON header at byte {PREFIX_BYTES} is not a 32-bit number")
    return value


def _language_member(value: object) -> Language | None:
    if type(value) is int:
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else None
    if isinstance(value, str):
        return Language.__members__.get(value)
    return None


def _ext_text(value: object) -> str:
    """Text of a JSON value as Java's map of strings would hold it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return msgspec.json.encode(value).decode()


_BINARY_HEAD = struct.Struct(">hbhiii")
_BINARY_HEAD_BYTES: Final = _BINARY_HEAD.size
_NAME_BYTES_MAX: Final = 32_767


def _decode_binary(header: bytes, body: bytes) -> Command:
    at = _BINARY_HEAD_BYTES
    end = len(header)
    if end < at + 4:
        raise FrameError(
            f"binary header of {end} bytes at byte {PREFIX_BYTES} is shorter than its {at + 4} fixed bytes"
        )
    code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(header)
    if not 0 <= remark_length <= end - at - 4:
        raise FrameError(f"remark length {remark_length} at byte {PREFIX_BYTES + at - 4} does not fit the header")
    try:
        remark = header[at : at + remark_length].decode() if remark_length else None
        at += remark_length
        block_length = int.from_bytes(header[at : at + 4], "big", signed=True)
        at += 4
        if block_length < 0 or block_length > end - at:
            raise FrameError(f"ext field block length {block_length} at byte {PREFIX_BYTES + at - 4} does not fit")
        fields = _decode_block(header, at, at + block_length)
    except UnicodeDecodeError as error:
        raise FrameError(f"text in the binary header at byte {PREFIX_BYTES} is not UTF-8: {error}") from error
    return Command(
        code,
        opaque,
        flag,
        LANGUAGES[language] if 0 <= language < len(LANGUAGES) else None,
        version,
        remark,
        fields,
        block_length > 0,
        body,
        Serialize.BINARY,
    )


def _decode_block(header: bytes, at: int, end: int) -> dict[str, str]:
    """Ext fields in `header[at:end]`: int16 name length, name, int32 value length, value; in that order."""
    fields: dict[str, str] = {}
    while at < end:
        start = at + 2
        at = start + int.from_bytes(header[at:start], "big", signed=True)
        if at < start or at + 4 > end:
            raise FrameError(f"ext field name at byte {PREFIX_BYTES + start - 2} does not fit its block")
        name = header[start:at].decode()
        start = at + 4
        at = start + int.from_bytes(header[at:start], "big", signed=True)
        if at < start or at > end:
            raise FrameError(f"value of ext field {name!r} at byte {PREFIX_BYTES + start - 4} does not fit its block")
        fields[name] = header[start:at].decode()
    return fields


# --- encoding -----------------------------------------------------------------------------------------------------


def plain_text(value: object) -> str:
    """Texts of other classes, such as numpy's."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no text")


_encode_json = msgspec.json.Encoder(enc_hook=plain_text).encode


def encode(command: Command) -> bytes:
    """The whole frame of `command`. Raises ProtocolError for what the protocol cannot carry."""
    body = command.body
    return encode_head(command, len(body)) + body if body else encode_head(command, 0)


def encode_head(command: Command, body_length: int) -> bytes:
    """Everything of the frame before a body of `body_length` bytes: bodies can leave without being copied."""
    try:
        if command.serialize is Serialize.BINARY:
            header = _encode_binary(command)
            size = len(header)
            mark = Serialize.BINARY << 24 | size
        else:
            fields = command.fields
            if fields and command.remark is None and command.language is Language.JAVA:  # nearly every answer of ours
                header = _JSON_ANSWER % (
                    command.code,
                    _encode_json(fields),
                    command.flag,
                    command.opaque,
                    command.version,
                )
            else:
                header = _encode_json_header(command)
            mark = size = len(header)
    except UnicodeEncodeError as error:
        raise ProtocolError(f"command {command.code} has text that cannot be written as UTF-8: {error}") from error
    except TypeError as error:
        raise ProtocolError(f"command {command.code} has a field that cannot be written: {error}") from error
    length = size + body_length + 4
    if size > HEADER_MASK or length > FRAME_BYTES_MAX - 4:
        raise ProtocolError(
            f"command {command.code} needs a frame of {length + 4} bytes; the protocol allows {FRAME_BYTES_MAX}",
            remedy="send less at once",
        )
    return _pack_prefix(length, mark) + header


_JSON_ANSWER: Final = (
    b'{"code":%d,"extFields":%b,"flag":%d,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
)


def _encode_json_header(command: Command) -> bytes:
    language = command.language
    remark = command.remark
    return b'{"code":%d%b,"flag":%d%b,"opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        b',"extFields":' + _encode_json(command.fields) if command.has_fields or command.fields else b"",
        command.flag,
        b"" if language is None else b',"language":"%b"' % language.encode(),
        command.opaque,
        b"" if remark is None else b',"remark":' + _encode_json(remark),
        command.version,
    )


def _encode_binary(command: Command) -> bytes:
    parts: list[bytes] = []
    for name, value in command.fields.items():
        name_bytes = name.encode()
        if len(name_bytes) > _NAME_BYTES_MAX:
            raise ProtocolError(
                f"name of an ext field has {len(name_bytes)} bytes; a binary header allows {_NAME_BYTES_MAX}"
            )
        value_bytes = value.encode()
        parts += len(name_bytes).to_bytes(2, "big"), name_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes
    block = b"".join(parts)
    remark = (command.remark or "").encode()
    try:
        head = _BINARY_HEAD.pack(
            command.code,
            LANGUAGE_ORDINALS[command.language or Language.OTHER],
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise ProtocolError(
            f"command {command.code} does not fit a binary header: {error}",
            remedy="use the JSON header; binary codes end at 32767",
        ) from error
    return b"".join((head, remark, len(block).to_bytes(4, "big"), block))
