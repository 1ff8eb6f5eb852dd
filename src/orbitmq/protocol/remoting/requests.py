"""The table of requests: for each code its header fields, who serves it, what its caller needs, and why it is refused if it is.

Header fields are written in the notation of the protocol document, one word per field:

    name             optional text          name:int    32-bit number      name:bool     boolean
    name!            mandatory              name:long   64-bit number      name:boundary LOWER or UPPER
    name:int=-1      value taken when the field is absent

What a caller needs is one word per need; all of them are needed:

    Topic=topic:Pub           may publish to the topic that the header field `topic` names
    Group=group:Sub|Get       one of the two actions is enough
    Topic=topic?:Get          nothing is needed where the field is absent or empty
    Topic=topicList[;]:Get    every name in the field, which stand between these characters
    Topic=@body:Sub           every topic that the body names
    Topic=@record:Pub         every topic that the request leads to through a record, a handle, an id or a name, whatever it says itself
    Topic=*:List              all topics
    Cluster:Update            the cluster of the server
    signed                    a caller that is known, whatever it may do

Rules of this file
1. "Mandatory" is what the protocol document declares. Servers do not refuse a request because such a field is
   missing; they take the default of the type (0, false, empty). Answers always carry their mandatory fields.
2. A resource that a request does not name, though its row says where, is missing: such a request is not one without needs.
3. The topic of a retry or dead-letter queue stands for its group.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.request_rows import ROWS, Row


class FieldType(Enum):
    """Type of an ext field; its value on the wire is always text."""

    TEXT = "text"
    INT = "int"
    LONG = "long"
    BOOLEAN = "bool"
    BOUNDARY = "boundary"


class HeaderField(NamedTuple):
    """One ext field. `default` is the text taken when it is absent; None where there is none."""

    name: str
    type: FieldType
    mandatory: bool
    default: str | None


class HeaderSpec(NamedTuple):
    """Ext fields of a request and of its answer, in the order of the protocol document."""

    request: tuple[HeaderField, ...]
    response: tuple[HeaderField, ...]


class RequestServer(Enum):
    """Who serves a request."""

    BROKER = "broker"
    NAME_SERVER = "name-server"
    CLIENT = "client"


class ResourceType(Enum):
    """What a permission is about; the values are those of RocketMQ's policies."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    """Policies of RocketMQ may name one. No request needs any."""


class Action(Enum):
    """What may be done with a resource; the values are those of RocketMQ's policies."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class NamedBy(Enum):
    """Where the name of a needed resource stands."""

    FIELD = "field"
    BODY = "@body"
    RECORD = "@record"
    ALL = "*"
    SERVER = "server"
    """Nowhere in the request: the cluster is the server's own."""


class Need(NamedTuple):
    """One of `actions` on a resource. `field` and `separators` (empty: one name) are for resources named by a field."""

    resource: ResourceType
    actions: frozenset[Action]
    named_by: NamedBy
    field: str = ""
    separators: str = ""
    optional: bool = False


class RequestRow(NamedTuple):
    """`signed`: the caller must be known, even where `needs` is empty. `waits`: it may be held, so a broker's second port refuses it.

    `refused` says why no server of ours answers it; where nobody serves it and that is empty, RocketMQ has no use for it either.
    """

    code: RequestCode
    header: HeaderSpec
    served_by: frozenset[RequestServer]
    needs: tuple[Need, ...]
    needs_text: str
    signed: bool
    waits: bool
    refused: str


@cache
def _field(word: str) -> HeaderField:
    """One field of a header; the notation is in the module docstring. Most words stand in many rows, and every server keeps the table."""
    declaration, has_default, default = word.partition("=")
    mandatory = declaration.endswith("!")
    name, _, type_name = declaration.rstrip("!").partition(":")
    return HeaderField(name, FieldType(type_name or "text"), mandatory, default if has_default else None)


@cache
def _servers(words: str) -> frozenset[RequestServer]:
    return frozenset(map(RequestServer, words.split()))


@cache
def _need(word: str) -> Need:
    """One need; the notation is in the module docstring."""
    resource, _, actions_text = word.rpartition(":")
    type_name, _, place = resource.partition("=")
    actions = frozenset(Action(action) for action in actions_text.split("|"))
    if not place:
        return Need(ResourceType(type_name), actions, NamedBy.SERVER)
    if place in ("@body", "@record", "*"):
        return Need(ResourceType(type_name), actions, NamedBy(place))
    field, _, separators = place.rstrip("?").rstrip("]").partition("[")
    return Need(ResourceType(type_name), actions, NamedBy.FIELD, field, separators, optional=place.endswith("?"))


def read_row(row: Row) -> RequestRow:
    """What a row says. ValueError for a word that has no meaning."""
    words = row.needs.split()
    return RequestRow(
        row.code,
        HeaderSpec(tuple(map(_field, row.request.split())), tuple(map(_field, row.response.split()))),
        _servers(row.served_by),
        tuple(_need(word) for word in words if word != "signed"),
        row.needs,
        bool(words),
        row.waits,
        row.refused,
    )


REQUESTS: Final[dict[RequestCode, RequestRow]] = {row.code: read_row(row) for row in ROWS}
"""The row of each code."""


def not_supported(code: int, server: RequestServer) -> str:
    """Remark of the answer "not supported" to a request that this server does not serve."""
    this = server.value.replace("-", " ")
    row = REQUESTS.get(code)  # type: ignore[call-overload]
    if row is None:
        return f"request code {code} is not supported by this {this}"
    others = [
        other.value.replace("-", " ") for other in RequestServer if other in row.served_by and other is not server
    ]
    why = row.refused or (f"it is for a {' or a '.join(others)}" if others else "")
    return f"request code {code} ({row.code.name}) is not supported by this {this}{why and ': ' + why}"
