"""Avro bodies as columns, and back, by `fastavro`.

Rules of this file
1. A body is read by the schema that it was written with, which its id names, and resolved to the schema of the read.
2. A body is read to its last byte: bytes that are left mean another schema.
3. A schema that names itself is read by fastavro's code in Python: its C code does not count how deep it goes, and a body of some MB would
   end the process. Arrays whose items take no bytes are refused: a few bytes would claim any number of them.
   A number has ten bytes at most: Python's take any number of them, and one of a megabyte takes a minute.
4. What no column can hold is refused by name: unions of several types, types that name themselves. A schema of the user's that goes
   around them is served.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_DEPTH_MAX, PAYLOAD_FIELDS_MAX
from orbitmq.spark.typed.decoded import Decoded, OneDecoded, library, of_dicts, reason_of, row_by_row
from orbitmq.spark.typed.fitting import no_field
from orbitmq.spark.typed.framing import HEAD_BYTES, schema_id_of

_TIMES: Final = pa.timestamp("us", tz="UTC")
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _TIMES,
    ("long", "timestamp-micros"): _TIMES,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PLAIN: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(),
    "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip


_DECIMAL_DIGITS: Final = 38


class AvroSchema(NamedTuple):
    """A schema, and the named types that it is made of. recursive: it names itself somewhere."""

    parsed: Any
    named: Mapping[str, Any]
    recursive: bool


def avro_schema(texts: Sequence[str]) -> AvroSchema:
    """The last of the schemas; those before it are the ones that it refers to. `ConfigurationError`."""
    fastavro = library("fastavro")
    named: dict[str, Any] = {}
    parsed: Any = None
    try:
        for text in texts:
            parsed = fastavro.parse_schema(_with_known_logic(json.loads(text)), named_schemas=named)
    except (
        fastavro.schema.SchemaParseException,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as problem:
        raise ConfigurationError(
            f"an Avro schema cannot be read: {reason_of(problem)}", remedy="look at it"
        ) from problem
    seen = _Seen(named)
    seen.look(parsed, ())
    return AvroSchema(parsed, named, seen.recursive)


def usable_schema(texts: Sequence[str]) -> AvroSchema | str:
    """As `avro_schema`, or why there is none: of many versions that a registry keeps for ever one may be of no use."""
    try:
        return avro_schema(texts)
    except ConfigurationError as problem:
        return str(problem.args[0])


def _with_known_logic(schema: Any) -> Any:
    """Without the logical types that no column has; their values stay what they are stored as."""
    if isinstance(schema, list):
        return [_with_known_logic(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _with_known_logic(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
    }
    if "logicalType" in kept and not _is_known_logic(kept):
        del kept["logicalType"]
    return kept


def _is_known_logic(schema: Mapping[str, Any]) -> bool:
    kind, logic = schema.get("type"), schema["logicalType"]
    if not isinstance(kind, str) or not isinstance(logic, str):
        return False
    if logic != "decimal":
        return (kind, logic) in _LOGICAL
    digits = schema.get("precision", 0)
    return kind in ("bytes", "fixed") and (not isinstance(digits, int) or 0 < digits <= _DECIMAL_DIGITS)


class _Seen:
    """Looks through a schema once: does it name itself, and can a body claim more items than it has bytes?"""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._looked: dict[str, bool] = {}
        self.recursive = False

    def look(self, schema: Any, above: tuple[str, ...]) -> bool:
        """Whether a value takes a byte at least."""
        if isinstance(schema, list):
            for one in schema:
                self.look(one, above)
            return True
        if isinstance(schema, str):
            if schema not in self._named:
                return schema != "null"
            if schema in above:
                self.recursive = True
                return True
            if schema in self._looked:
                return self._looked[schema]
            schema = self._named[schema]
        kind, name = schema["type"], schema.get("name")
        if kind in ("record", "error"):
            inside = (*above, name)
            found = [self.look(field["type"], inside) for field in schema["fields"]]
            self._looked[name] = any(found)
            return self._looked[name]
        if kind == "array":
            if not self.look(schema["items"], above):
                raise ConfigurationError(
                    "an Avro schema has an array whose items take no bytes", remedy="such topics cannot be decoded"
                )
            return True
        if kind == "map":
            self.look(schema["values"], above)
            return True
        if kind == "fixed":
            return bool(schema["size"])
        return self.look(kind, above) if isinstance(kind, dict | list) or kind in self._named else kind != "null"


def avro_type(schema: AvroSchema, wanted: Any = None) -> Any:
    """The Arrow type of payloads; only the fields of `wanted` where it is given."""
    return _Types(schema.named).of(schema.parsed, wanted, "payload", ())


class _Types:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._fields = 0

    def of(self, schema: Any, wanted: Any, path: str, above: tuple[str, ...]) -> Any:
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if len(others) != 1:
                raise ConfigurationError(
                    f"{path} is of several types in the Avro schema",
                    remedy="name the other fields in a schema of your own: payload struct<id: bigint>, payloadError string",
                )
            return self.of(others[0], wanted, path, above)
        if isinstance(schema, str):
            if schema not in self._named:
                return self._scalar(schema, {}, path)
            schema = self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, wanted, path, above)
        if kind == "array":
            inner = wanted.value_type if wanted is not None and pa.types.is_list(wanted) else None
            return pa.list_(self.of(schema["items"], inner, f"{path}[]", above))
        if kind == "map":
            inner = wanted.item_type if wanted is not None and pa.types.is_map(wanted) else None
            return pa.map_(pa.string(), self.of(schema["values"], inner, f"{path}[]", above))
        return self._scalar(kind, schema, path) if isinstance(kind, str) else self.of(kind, wanted, path, above)

    def _record(self, schema: Any, wanted: Any, path: str, above: tuple[str, ...]) -> Any:
        name = schema["name"]
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        narrow = wanted is not None and pa.types.is_struct(wanted)
        if (not narrow and name in above) or len(above) > PAYLOAD_DEPTH_MAX:
            raise ConfigurationError(
                f"the Avro schema is recursive: {path} is a {name} inside of itself",
                remedy="name the fields that you read in a schema of your own, as deep as you need them",
            )
        found = []
        self._fields += 0 if narrow else len(fields)
        if self._fields > PAYLOAD_FIELDS_MAX:  # types that are used twice at each of thirty levels would never end
            raise ConfigurationError(
                f"the Avro schema has more than {PAYLOAD_FIELDS_MAX} fields",
                remedy="name the fields that you read in a schema of your own",
            )
        for field in wanted if narrow else fields:
            field_name = field.name if narrow else field
            if field_name not in fields:
                raise no_field(f"{path}.{field_name}", "the Avro schema", list(fields))
            inner = field.type if narrow else None
            found.append(
                pa.field(field_name, self.of(fields[field_name], inner, f"{path}.{field_name}", (*above, name)))
            )
        return pa.struct(found)

    def _scalar(self, kind: str, schema: Mapping[str, Any], path: str) -> Any:
        logic = schema.get("logicalType")
        if logic == "decimal" and kind in ("bytes", "fixed"):
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if kind not in _PLAIN:
            raise ConfigurationError(
                f"{path} is {kind} in the Avro schema, which no column is", remedy="leave it out of your schema"
            )
        return _LOGICAL.get((kind, logic or ""), _PLAIN[kind])


class AvroDecoder:
    """Decodes records into `kind`, a struct.

    writers: schemas by id, or why one cannot be used, which is then the reason of its bodies; for bodies without an id the one under
    None. reader: what they are resolved to, None for no other.
    """

    def __init__(self, kind: Any, writers: Mapping[int | None, AvroSchema | str], reader: AvroSchema | None) -> None:
        self._kind = kind
        self._framed = None not in writers
        self._writers = writers
        self._reader = reader

    def decode(self, bodies: Any) -> Decoded:
        return row_by_row(bodies, self._read, self._kind, of_dicts(self._kind, self._kind))

    def _read(self, body: bytes) -> OneDecoded:
        try:
            return self._value(body), None
        except Exception as problem:  # fastavro raises what comes: IndexError, KeyError, OverflowError, its own
            return None, "it is nested too deeply" if isinstance(problem, RecursionError) else reason_of(problem)

    def _value(self, body: bytes) -> Any:
        schema_id, at = None, 0
        if self._framed:
            schema_id, at = schema_id_of(body), HEAD_BYTES
        writer = self._writers.get(schema_id)
        if writer is None:
            known = ", ".join(str(one) for one in sorted(one for one in self._writers if one is not None))
            raise ValueError(f"it was written with schema {schema_id}, and the registry's subjects have {known}")
        if isinstance(writer, str):
            raise ValueError(f"it was written with schema {schema_id}: {writer}")
        stream = io.BytesIO(body)
        stream.seek(at)
        reader = self._reader
        read = _reading(writer.recursive or (reader is not None and reader.recursive))
        try:
            value = read(stream, writer.parsed, None if reader is None or reader is writer else reader.parsed)
        except (EOFError, IndexError) as problem:
            raise ValueError(
                f"it ends too early, or was written with another schema ({type(problem).__name__})"
            ) from problem
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left: it was written with another schema")
        return value


def _reading(careful: bool) -> Callable[..., Any]:
    if careful:
        from orbitmq.spark.typed.careful_avro import schemaless_reader

        return schemaless_reader
    import fastavro

    return fastavro.schemaless_reader


class AvroEncoder:
    """Makes bodies of payloads. head: what each begins with."""

    def __init__(self, schema: AvroSchema, head: bytes) -> None:
        self._schema = schema
        self._head = head

    def encode(self, value: Any) -> bytes:
        import fastavro

        stream = io.BytesIO()
        stream.write(self._head)
        fastavro.schemaless_writer(stream, self._schema.parsed, value, strict_allow_default=True)
        return stream.getvalue()
