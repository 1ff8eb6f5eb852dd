"""How `tail` prints a message: one line of text, one JSON document, the bare body, or a line of the user's own.

Rules of this file
1. Whole messages are written at once, so that an end by Ctrl-C never leaves half of one.
2. A template is tried on a made-up message before anything is read: a wrong name is a usage error, not a surprise.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from orbitmq.protocol.records import Record


class TailFormat(StrEnum):
    """Form of a printed message."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


SAMPLE: dict[str, object] = {
    "topic": "", "queue": 0, "queue_offset": 0, "physical_offset": 0, "size": 0, "offset_message_id": "", "unique_key": "",
    "tag": "", "keys": "", "store_timestamp": 0, "store_time": "", "born_timestamp": 0, "born_time": "", "born_host": "",
    "store_host": "", "reconsume_times": 0, "body": "", "body_bytes": 0, "broker": "",
}  # fmt: skip
"""What a template may name, with values of the right types; beside it `properties[NAME]`."""


class _Properties(dict[str, str]):
    """A property that a message does not have is empty text."""

    def __missing__(self, key: str) -> str:
        return ""


def check_template(template: str) -> None:
    """`BadParameter` for a template that names what no message has."""
    try:
        template.format(**SAMPLE, properties=_Properties())
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        names = ", ".join(SAMPLE)
        raise typer.BadParameter(
            f"--template {template!r}: {type(error).__name__} {error}; it may name {names} and properties[NAME]"
        ) from error


def print_message(record: Record, broker: str, form: TailFormat, template: str | None = None) -> None:
    """Write one message to standard output, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(_line(record, broker, form, template) + b"\n")
    sys.stdout.buffer.flush()


def _line(record: Record, broker: str, form: TailFormat, template: str | None) -> bytes:
    import msgspec

    from orbitmq.cli.shared.message_view import body_of, message_view, table_view
    from orbitmq.errors import ProtocolError

    if template is not None:
        view = {name: value if value is not None else "" for name, value in message_view(record).items()}
        properties = view.pop("properties")
        assert isinstance(properties, dict)
        return template.format(**{**SAMPLE, **view, "broker": broker}, properties=_Properties(properties)).encode()
    if form is TailFormat.JSON:
        return msgspec.json.encode({**message_view(record), "broker": broker})
    if form is TailFormat.RAW:
        try:
            return body_of(record)
        except ProtocolError:
            return bytes(record.body)  # as it is stored: better than nothing, and the reader sees that it is no text
    shown = table_view(message_view(record))
    tag = f" [{shown['tag']}]" if shown["tag"] else ""
    body = str(shown["body"]).replace("\r", " ").replace("\n", " ")
    return f"{shown['store_time']} {shown['topic']}/{shown['queue']}@{shown['queue_offset']}{tag} {body}".encode()
