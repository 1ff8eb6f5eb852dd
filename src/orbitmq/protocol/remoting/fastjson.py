"""The JSON dialect of RocketMQ's Java peers.

Bodies and configuration files are written by the library fastjson, whose output is JSON with three liberties:

    {0:"x",1:"y"}                                  maps with numeric keys are written without quotes
    {{"brokerName":"b","queueId":0,"topic":"T"}:5} maps keyed by an object are written with the object as key
    {"$ref":"$.statsDay"}                          an object that occurs twice is written once and then referred to

Rules of this file
1. Strict JSON is read by msgspec. The parser here reads what msgspec refuses, and every body with a reference.
2. Nothing is evaluated and nothing is rewritten as text: data inside strings stays data.
3. Numeric keys become text keys, quoted or not (`{0:1}` and `{"0":1}` give the same value). Integers stay integers.
4. A reference becomes the object it names. A reference to an object that contains it has no finite value and is
   refused, and so is a document whose references multiply it beyond `JSON_VALUES_MAX`.
5. We write strict JSON with sorted, quoted keys and without references; only maps keyed by an object keep the
   dialect's form, because that is the one form that all Java releases read.

(RocketMQ remoting, fastjson dialect and bodies.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # in C, missing in typeshed
from typing import Any, Final, NoReturn

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import JSON_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX

ObjectKeyReader = Callable[[dict[Any, Any]], Hashable]


class ObjectKey(tuple[tuple[str, Hashable], ...]):
    """An object that stands as the key of a map: its members sorted by name, hence hashable."""

    __slots__ = ()

    @classmethod
    def of(cls, members: Mapping[Any, Any]) -> ObjectKey:
        """The key for an object whose members are all plain values; ProtocolError for others."""
        if any(isinstance(value, dict | list) for value in members.values()):
            raise ProtocolError("an object used as a map key has a member that is not a plain value")
        return cls(sorted(((str(name), value) for name, value in members.items()), key=lambda member: member[0]))

    def members(self) -> dict[str, Hashable]:
        """The object again."""
        return dict(self)


# --- reading ------------------------------------------------------------------------------------------------------

_decode_strict = msgspec.json.Decoder().decode


def loads(
    data: bytes | bytearray | memoryview | str,
    *,
    object_key: ObjectKeyReader = ObjectKey.of,
    quoted_objects: bool = False,
) -> Any:
    """Value of a document in the dialect, made of dict, list, str, int, float, bool and None.

    `object_key` makes a hashable key of an object that stands as a map key. With `quoted_objects` a text key that
    is itself an object (`"{\\"brokerName\\":...}"`, written by peers that are not Java) is taken as that object.
    Duplicate keys: the last one wins. Objects named by a reference are shared, not copied: treat the result as
    read-only. Raises ProtocolError that says what is wrong and at which character.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if len(raw) > JSON_BYTES_MAX:
        raise ProtocolError(f"JSON of {len(raw)} bytes is over the limit of {JSON_BYTES_MAX} bytes")
    if b"$ref" not in raw and not (quoted_objects and b'"{' in raw):
        try:
            return _decode_strict(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # the dialect's parser reads it, or says what is wrong with it
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8: {error}") from error
    return _Parser(text, object_key, quoted_objects).document()


class _Reference:
    """A reference whose target is not known yet; it stands at `container[key]` until then."""

    __slots__ = ("at", "container", "key", "path")

    def __init__(self, path: str, container: Any, key: Any, at: int) -> None:
        self.path = path
        self.container = container
        self.key = key
        self.at = at


_blank = re.compile(r"[ \t\r\n\f\b\uFEFF]*").match
_number = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII).match
_offset_member = re.compile(r"(-?\d{1,10}):(-?\d{1,19})([,}])", re.ASCII).match
_identifier = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII).match
_single_quoted = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL).match
_escape_or_quote = re.compile(r'\\.|"', re.DOTALL)
_find_surrogate = re.compile("[\ud800-\udfff]").search
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_NUMBER_CHARS_MAX: Final = 400
"""Numbers of the protocol have at most 20 digits; converting thousands takes quadratic time."""


class _Parser:
    """Recursive descent over one document."""

    def __init__(self, text: str, object_key: ObjectKeyReader, quoted_objects: bool) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.object_key = object_key
        self.quoted_objects = quoted_objects
        self.references: list[_Reference] = []

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        where = self.at if at is None else at
        raise ProtocolError(f"JSON {problem} at character {where}: {self.text[where : where + 20]!r}")

    def document(self) -> Any:
        value = self.value(None, None)
        if self.peek():
            self.fail("goes on after its end")
        if isinstance(value, _Reference):
            self.fail("is nothing but a reference", 0)
        if self.references:
            _Resolver(value).resolve(self.references)
        return value

    def peek(self) -> str:
        """Next character that is not blank; empty at the end."""
        text = self.text
        char = text[self.at : self.at + 1]
        if char > " " and char != "\ufeff":
            return char
        match = _blank(text, self.at)
        assert match is not None, "the pattern matches the empty text"
        self.at = match.end()
        return text[self.at : self.at + 1]

    def value(self, container: Any, key: Any) -> Any:
        """The next value; it will stand at `container[key]`."""
        char = self.peek()
        if char == '"':
            return self.string()
        if char == "{" or char == "[":
            if self.depth == JSON_DEPTH_MAX:
                self.fail(f"is nested deeper than {JSON_DEPTH_MAX} levels")
            self.depth += 1
            value = self.object(container, key) if char == "{" else self.array()
            self.depth -= 1
            return value
        if char == "'":
            return self.single_quoted()
        return self.scalar()

    def object(self, container: Any, key: Any) -> Any:
        start = self.at
        self.at += 1
        members: dict[Any, Any] = {}
        char = self.peek()
        while char != "}":
            offset = _offset_member(self.text, self.at)
            if offset is not None:  # tables of consumer offsets consist of these
                members[offset.group(1)] = int(offset.group(2))
                self.at = offset.end()
                char = offset.group(3)
            else:
                name = self.key(char)
                if self.peek() != ":":
                    self.fail("has a key without a colon")
                self.at += 1
                members[name] = self.value(members, name)
                char = self.peek()
                self.at += 1
            if char == ",":
                char = self.peek()
                if char == "}":
                    self.fail("has a comma before the end of an object")
            elif char == "}":
                break
            else:
                self.fail("object is not closed", self.at - 1)
        else:
            self.at += 1
        if len(members) == 1 and isinstance(path := members.get("$ref"), str):
            reference = _Reference(path, container, key, start)
            self.references.append(reference)
            return reference
        return members

    def key(self, char: str) -> Any:
        if char == '"' or char == "'":
            text = self.string() if char == '"' else self.single_quoted()
            if self.quoted_objects and text.startswith("{"):
                return self.frozen(_Parser(text, self.object_key, False).document(), self.at)
            return text
        if char == "{":
            start = self.at
            references = len(self.references)
            members = self.value(None, None)
            if len(self.references) != references:
                self.fail("has a reference in a map key, which cannot be resolved", start)
            return self.frozen(members, start)
        match = _number(self.text, self.at) or _identifier(self.text, self.at)
        if match is None:
            self.fail("has no key")
        self.at = match.end()
        return match.group()

    def frozen(self, members: dict[Any, Any], at: int) -> Hashable:
        try:
            return self.object_key(members)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ProtocolError(f"JSON object at character {at} cannot be a map key: {error}") from error

    def array(self) -> list[Any]:
        self.at += 1
        items: list[Any] = []
        if self.peek() == "]":
            self.at += 1
            return items
        while True:
            items.append(self.value(items, len(items)))
            char = self.peek()
            if char == ",":
                self.at += 1
            elif char == "]":
                self.at += 1
                return items
            else:
                self.fail("array is not closed")

    def scalar(self) -> Any:
        match = _number(self.text, self.at)
        if match is not None:
            if match.end() - self.at > _NUMBER_CHARS_MAX:
                self.fail("has a number that is too long")
            self.at = match.end()
            if match.group(1) is None and match.group(2) is None:
                return int(match.group())
            return float(match.group())
        match = _identifier(self.text, self.at)
        if match is None or match.group() not in _LITERALS:
            self.fail("has no value")
        self.at = match.end()
        return _LITERALS[match.group()]

    def string(self) -> str:
        start = self.at
        try:
            text, self.at = scanstring(self.text, start + 1, False)
        except JSONDecodeError as error:
            self.fail(f"string is malformed ({error.msg})", start)
        return self.checked(text, start)

    def single_quoted(self) -> str:
        start = self.at
        match = _single_quoted(self.text, start)
        if match is None:
            self.fail("string is not closed", start)
        try:
            text, _ = scanstring(f'"{_escape_or_quote.sub(_double_quoted, match.group(1))}"', 1, False)
        except JSONDecodeError as error:
            self.fail(f"string is malformed ({error.msg})", start)
        self.at = match.end()
        return self.checked(text, start)

    def checked(self, text: str, start: int) -> str:
        if not text.isascii() and _find_surrogate(text):
            self.fail("string has half of a surrogate pair", start)
        return text


def _double_quoted(match: re.Match[str]) -> str:
    """What a piece of a single-quoted string is in a double-quoted one."""
    piece = match.group()
    return {'"': '\\"', "\\'": "'"}.get(piece, piece)


_path_step = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(\d{1,9})\]", re.DOTALL).match


class _Resolver:
    """Puts the named objects in the places of references."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.object_names: dict[int, dict[str, Any]] = {}

    def resolve(self, references: list[_Reference]) -> None:
        """Resolves all references, in the order in which they stand in the document."""
        for reference in references:
            container, key = reference.container, reference.key
            if container is not None and container[key] is reference:  # not overwritten by a duplicate key
                container[key] = self.find(reference)
        self.measure()

    def fail(self, reference: _Reference, problem: str) -> NoReturn:
        raise ProtocolError(f"JSON reference {reference.path[:200]!r} at character {reference.at} {problem}")

    def find(self, reference: _Reference) -> Any:
        path = reference.path
        if path in ("$", "@", ".."):
            self.fail(reference, "names an object that contains it, which has no finite value")
        if not path.startswith("$"):
            self.fail(reference, "is not a path from the root")
        value = self.root
        at = 1
        while at < len(path):
            step = _path_step(path, at)
            if step is None:
                self.fail(reference, f"cannot be read from character {at} of the path on")
            at = step.end()
            value = self.child(value, step.group(1), step.group(2), reference)
            if isinstance(value, _Reference):
                self.fail(reference, "names an object that is not known at this place")
        return value

    def child(self, value: Any, name: str | None, index: str | None, reference: _Reference) -> Any:
        try:
            if name is None:
                assert index is not None, "a step is a name or an index"
                return value[int(index)] if isinstance(value, list) else value[index]
            if isinstance(value, dict):
                name = re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
                return value[name] if name in value else value[self.names_of(value)[name]]
        except (KeyError, IndexError, TypeError):
            pass
        self.fail(reference, "names nothing in the document")

    def names_of(self, value: dict[Any, Any]) -> dict[str, Any]:
        """Object keys of a map by the text that a Java peer uses for them in paths."""
        names = self.object_names.get(id(value))
        if names is None:
            names = {_path_name(key): key for key in value if not isinstance(key, str)}
            self.object_names[id(value)] = names
        return names

    def measure(self) -> None:
        """Refuses references in a circle, and documents that grow out of proportion by their references."""
        sizes: dict[int, tuple[int, int]] = {}  # container -> values in it with all repeats, levels below it
        open_containers: set[int] = set()
        stack: list[Any] = [self.root]
        while stack:
            container = stack[-1]
            children = [c for c in _items(container) if isinstance(c, dict | list)]
            missing = [child for child in children if id(child) not in sizes]
            if missing:
                if id(container) in open_containers or any(id(child) in open_containers for child in missing):
                    raise ProtocolError("JSON references form a circle, which has no finite value")
                open_containers.add(id(container))
                stack += missing
                continue
            stack.pop()
            open_containers.discard(id(container))
            count = 1 + len(container) + sum(sizes[id(child)][0] for child in children)
            levels = 1 + max((sizes[id(child)][1] for child in children), default=0)
            if count > JSON_VALUES_MAX or levels > JSON_DEPTH_MAX:
                raise ProtocolError(
                    f"JSON grows by its references to more than {JSON_VALUES_MAX} values or {JSON_DEPTH_MAX} levels"
                )
            sizes[id(container)] = (count, levels)


def _items(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _path_name(key: Any) -> str:
    members = key.members() if isinstance(key, ObjectKey) else msgspec.to_builtins(key)
    if isinstance(members, dict) and members.keys() == {"topic", "brokerName", "queueId"}:
        return (
            f"MessageQueue [topic={members['topic']}, brokerName={members['brokerName']}, queueId={members['queueId']}]"
        )
    return str(members)


# --- writing ------------------------------------------------------------------------------------------------------

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def dumps(value: Any) -> bytes:
    """`value` as JSON that every Java peer reads: sorted keys, integer keys quoted, object keys as objects.

    Takes what msgspec takes, and maps keyed by `ObjectKey` or a struct. NaN and infinities become null.
    """
    try:
        return _encode_sorted(value)
    except UnicodeEncodeError as error:
        raise ProtocolError(f"a text cannot be written as UTF-8: {error}") from error
    except TypeError:
        pass  # a map with keys that are not text lies somewhere inside
    if isinstance(value, dict):
        return b"{%b}" % b",".join(
            b"%b:%b" % member for member in sorted((_dumps_key(key), dumps(item)) for key, item in value.items())
        )
    if isinstance(value, msgspec.Struct):
        return b"{%b}" % b",".join(
            b'"%b":%b' % (encoded.encode(), dumps(item))
            for encoded, item in sorted(
                (encoded, getattr(value, name))
                for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            )
            if item is not None and item is not msgspec.UNSET
        )
    if isinstance(value, list | tuple | set | frozenset):
        return b"[%b]" % b",".join(dumps(item) for item in value)
    if isinstance(value, str):  # of a class of its own, such as numpy's
        return _encode_sorted(str.__str__(value))
    raise ProtocolError(f"a {type(value).__name__} has no form in JSON")


def _dumps_key(key: Any) -> bytes:
    if isinstance(key, ObjectKey):
        return _encode_sorted(key.members())
    if isinstance(key, bool | int | float):
        return b'"%b"' % _encode_sorted(key)
    return _encode_sorted(key)
