"""`orbitmq timer export` and `import`: pending timer messages as JSON lines, and back.

A line has the topic, the due time, what the program that sent the message gave it, and the body in base64. Importing sends new messages
with the same due times. Each is named by the id of the message it comes from and by what is imported with it, so that a second import
of the same file stores nothing again.

Rules of this file
1. Exporting changes nothing; what falls due meanwhile may be missing.
2. A line that cannot be sent ends the import with its number; what was sent before is sent, and a second run passes over it.
3. Every import ends with its account, also one that failed or was interrupted.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NamedTuple

import msgspec
import typer

from orbitmq.cli.asking.cluster_access import TopicOption, run
from orbitmq.cli.shared.instants import instant, parse_due_ms
from orbitmq.cli.shared.output import note, print_line, show_record
from orbitmq.clock import SystemClock
from orbitmq.limits import wire as limits

if TYPE_CHECKING:
    from orbitmq.client import Client, Producer, TimerMessage, TimerView

FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Only due at or after: 2030-05-01T12:00:00Z, ms, 10m (from now).", show_default=False),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Only due before this instant.", show_default=False)]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", help="With --topic: only with this key.", show_default=False)
]
KeyPrefixOption = Annotated[
    str | None,
    typer.Option("--key-prefix", help="With --topic: only with a key that begins like this.", show_default=False),
]

IMPORT_GROUP: Final = "orbitmq-timer-import"
IMPORT_SCOPE: Final = "orbitmq-timer-import-"
"""Before the digest of what is imported. With one name for all imports a line of a newer export would be taken for that of an older one."""

IMPORT_IN_MEMORY_BYTES: Final = 8 << 20
"""Most of standard input that is kept in memory; what is longer waits in a file without a name. It is read before anything is sent, because
its scope is named by all of it."""

IMPORT_AT_ONCE: Final = 32
"""Sends under way at a time."""


class TimerSelection(NamedTuple):
    """Which pending timer messages are meant."""

    topic: str | None
    from_ms: int | None
    until_ms: int | None
    key: str | None
    key_prefix: str | None

    @classmethod
    def parsed(
        cls, topic: str | None, due_from: str | None, due_until: str | None, key: str | None, key_prefix: str | None
    ) -> TimerSelection:
        """`BadParameter` for what does not go together."""
        if topic is None and (key is not None or key_prefix is not None):
            raise typer.BadParameter("--key and --key-prefix need --topic")
        if key is not None and key_prefix is not None:
            raise typer.BadParameter("give one of --key and --key-prefix")
        now_ms = SystemClock().now_ms()
        from_ms = None if due_from is None else parse_due_ms("--from", due_from, now_ms)
        until_ms = None if due_until is None else parse_due_ms("--until", due_until, now_ms)
        if from_ms is not None and until_ms is not None and until_ms <= from_ms:
            raise typer.BadParameter("--until is not after --from")
        return cls(topic, from_ms, until_ms, key, key_prefix)

    def list(self, client: Client, page_count: int) -> AsyncIterator[TimerView]:
        return client.timers.list(
            topic=self.topic,
            due_from=self.from_ms,
            due_until=self.until_ms,
            key=self.key,
            key_prefix=self.key_prefix,
            page_count=page_count,
            on_left_out=note_left_out,
        )


def note_left_out(broker_name: str, count: int) -> None:
    """Say that a list is not all that is pending."""
    note(
        f"incomplete: broker {broker_name} cannot read damaged files of its far tier, in which up to {count} more messages wait; "
        "its log names the files"
    )


class ExportedTimer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One exported timer message. `body` is base64."""

    topic: str
    message_id: str
    deliver_ms: int
    body: str
    keys: tuple[str, ...] = ()
    tag: str | None = None
    ordering_key: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)


Numbered = tuple[int, ExportedTimer, bytes]
"""A line with its number and its body."""


def timer_row(timer: TimerView) -> dict[str, object]:
    """A pending timer message for a table or JSON."""
    return {
        "due": instant(timer.deliver_ms),
        "deliver_ms": timer.deliver_ms,
        "topic": timer.topic,
        "message_id": timer.message_id,
        "keys": list(timer.keys),
        "size": timer.size,
        "tier": timer.tier,
        "broker": timer.queue.broker_name,
        "queue": timer.queue.queue_id,
        "stored_ms": timer.stored_ms,
        "stored": instant(timer.stored_ms),
        "delivered_ms": timer.delivered_ms,
        "recall_handle": timer.recall_handle,
    }


def export_timers(
    topic: TopicOption = None,
    due_from: FromOption = None,
    due_until: UntilOption = None,
    key: KeyOption = None,
    key_prefix: KeyPrefixOption = None,
) -> None:
    """Print pending timer messages in full, as one JSON document a line with the body in base64."""
    selection = TimerSelection.parsed(topic, due_from, due_until, key, key_prefix)
    exported = 0

    async def work(client: Client) -> None:
        nonlocal exported
        async for timer in selection.list(client, page_count=100):
            message = await client.timers.get(timer)
            if message is not None:
                print_line(exported_line(message))
                exported += 1

    run(work)
    note(f"{exported} exported")


def exported_line(message: TimerMessage) -> ExportedTimer:
    """What of a message is its program's own."""
    timer = message.timer
    return ExportedTimer(
        timer.topic,
        timer.message_id,
        timer.deliver_ms,
        base64.b64encode(message.body).decode(),
        timer.keys,
        message.tag,
        message.ordering_key,
        message.user_properties,
    )


def import_timers(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Lines of `timer export`; - is standard input.", show_default=False)
    ] = "-",
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope",
            help="Imports under the same name know each other's messages. By default those of the same lines do.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the lines, and send nothing.")] = False,
) -> None:
    """Send exported timer messages again, with the same due times; one whose time has passed is delivered at once.

    An import that is repeated stores nothing twice, as long as the topics keep their queues and at an orbitmq broker: what an earlier
    run sent is recognised. What was recalled since, or went with its topic, is sent again.
    """
    account = {"lines": 0, "sent": 0, "recognised": 0, "due_already": 0, "dry_run": dry_run}

    async def work(client: Client) -> None:
        import asyncio

        from orbitmq.errors import OrbitError

        async with client.producer(IMPORT_GROUP) as producer:
            for several in _chunks(_lines(source, file, name)):
                account["lines"] += len(several)
                now_ms = SystemClock().now_ms()
                account["due_already"] += sum(line.deliver_ms <= now_ms for _, line, _ in several)
                if dry_run:
                    continue
                sends = [asyncio.ensure_future(_send(producer, line, body, name)) for _, line, body in several]
                try:
                    for (number, _, _), sent in zip(several, sends, strict=True):
                        try:
                            await sent
                        except OrbitError:
                            note(
                                f"line {number} of {file} was not sent; what stands before it is imported. Run again with the same lines, "
                                f"or change them and run again with --scope {name}: what is imported is passed over"
                            )
                            raise
                finally:
                    await asyncio.gather(*sends, return_exceptions=True)
                    stored = [sent.result() for sent in sends if not sent.cancelled() and sent.exception() is None]
                    account["recognised"] += (known := sum(stored))
                    account["sent"] += len(stored) - known

    try:
        with _opened(file) as source:
            name = scope or IMPORT_SCOPE + _digest(source)
            run(work)
    finally:
        show_record(account)
    if dry_run:
        note("nothing was sent (--dry-run)")


async def _send(producer: Producer, line: ExportedTimer, body: bytes, scope: str) -> bool:
    """Whether the broker had it already."""
    from orbitmq.client import Once

    receipt = await producer.send(
        line.topic,
        body,
        tag=line.tag,
        key=line.keys or None,
        at=line.deliver_ms,
        ordering_key=line.ordering_key,
        properties=line.properties,
        once=Once(scope, 0, line.message_id),
    )
    return receipt.repeat is not None


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """What is imported, to be read more than once. Raises ConfigurationError for what cannot be read."""
    from orbitmq.errors import ConfigurationError

    with contextlib.ExitStack() as opened:
        source: Any
        try:
            if file == "-":
                source = opened.enter_context(tempfile.SpooledTemporaryFile(IMPORT_IN_MEMORY_BYTES))
                shutil.copyfileobj(sys.stdin.buffer, source)
                source.seek(0)
            else:
                source = opened.enter_context(open(file, "rb"))
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
        yield source


def _digest(source: BinaryIO) -> str:
    """The name of its content. Leaves it at its beginning."""
    digest = hashlib.blake2b(digest_size=16)
    while data := source.read(1 << 20):
        digest.update(data)
    source.seek(0)
    return digest.hexdigest()


def _lines(source: BinaryIO, file: str, scope: str) -> Iterator[Numbered]:
    """Lines with their bodies. `ConfigurationError` with the number of one that is none."""
    from orbitmq.errors import ConfigurationError

    for number, text in enumerate(source, 1):
        if not text.strip():
            continue
        if len(text) > limits.FRAME_BYTES_MAX:
            raise ConfigurationError(
                f"line {number} of {file} has {len(text)} bytes; no message is that large",
                remedy=f"what stands before it is imported; put the line right and run again with --scope {scope}, which passes over that",
            )
        try:
            line = msgspec.json.decode(text, type=ExportedTimer)
            yield number, line, base64.b64decode(line.body, validate=True)
        except (msgspec.DecodeError, binascii.Error, ValueError) as error:
            raise ConfigurationError(
                f"line {number} of {file} is no exported timer message: {error}",
                remedy=f"what stands before it is imported; put the line right and run again with --scope {scope}, which passes over that",
            ) from error


def _chunks(lines: Iterator[Numbered]) -> Iterator[Sequence[Numbered]]:
    several: list[Any] = []
    try:
        for line in lines:
            several.append(line)
            if len(several) == IMPORT_AT_ONCE:
                yield several
                several = []
    except Exception:
        if several:
            yield several  # what stands before a line that is wrong is sent
        raise
    if several:
        yield several
