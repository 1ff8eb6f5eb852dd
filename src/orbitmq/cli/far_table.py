"""`orbitmq timer table`: the far table of the cluster: what it holds, its files, who takes its rows, recalls.

Rules of this file
1. A table is made by the broker that owns it when it starts the first time; nothing here does that.
2. A verdict that is not what was asked for ends with the code of a failure, and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.cluster_access import run
from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.instants import instant, parse_due_ms, parse_instant_ms
from orbitmq.cli.output import note, show_record, show_rows
from orbitmq.cli.shared_options import ClusterCommand
from orbitmq.clock import SystemClock

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.far_table import ListedFile, RecalledRow, ShareReleased, TableStatus

app = typer.Typer(
    help="Timer messages of the whole cluster in files on shared storage: status, shares, files, recall, release.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

SHARE_COLUMNS: Final = ("bucket", "first", "end", "broker", "begun", "stored", "allowed")
FILE_COLUMNS: Final = ("name", "rows", "bytes", "first_due", "last_due", "counts_from", "counts_until")
RECALL_COLUMNS: Final = ("message_id", "verdict", "due", "brokers")


def _at(at_ms: int | None) -> str:
    return "" if at_ms is None else instant(at_ms)


@app.command(cls=ClusterCommand)
def status() -> None:
    """Show which table there is, what its files hold and how far brokers have taken it."""

    async def work(client: Client) -> TableStatus:
        return await client.far_table.status()

    found = run(work)
    show_record(
        {
            "table": found.table,
            "url": found.url,
            "bucket_s": found.bucket_ms / 1_000,
            "taken_until": _at(found.frontier_ms or None),
            "new_rows_from": _at(found.split_ms),
            "files": found.file_count,
            "rows": found.rows,
            "bytes": found.size_bytes,
            "recalls": found.recall_count,
            "garbage": found.garbage_count,
            "jobs": found.job_count,
            "shares": found.share_count,
            "version": found.version,
        }
    )


@app.command(cls=ClusterCommand)
def shares() -> None:
    """List the shares of buckets that brokers have claimed and not finished, earliest first."""

    async def work(client: Client) -> TableStatus:
        return await client.far_table.status()

    found = run(work)
    rows = [
        {
            "bucket": _at(share.bucket_ms),
            "first": share.first,
            "end": "" if share.end is None else share.end,
            "broker": share.broker,
            "begun": share.is_begun,
            "stored": share.stored,
            "allowed": share.allowed,
        }
        for share in found.shares
    ]
    show_rows(rows, columns=SHARE_COLUMNS, empty="no share is claimed")
    if found.share_count > len(rows):
        note(f"and {found.share_count - len(rows)} more")


@app.command(cls=ClusterCommand)
def files() -> None:
    """List the files with rows that no broker has taken yet."""

    async def work(client: Client) -> list[ListedFile]:
        return await client.far_table.files()

    rows = [
        {
            "name": file.name,
            "rows": file.rows,
            "bytes": file.size_bytes,
            "first_due": _at(file.min_due_ms),
            "last_due": _at(file.max_due_ms),
            "counts_from": _at(file.from_ms),
            "counts_until": _at(file.until_ms),
        }
        for file in run(work)
    ]
    show_rows(rows, columns=FILE_COLUMNS, empty="no file")


@app.command(cls=ClusterCommand)
def recall(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic of the messages.")],
    message_id: Annotated[str | None, typer.Option("--id", help="Id of the message.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option("--key", help="A key of the messages.", show_default=False)] = None,
    due: Annotated[
        str | None,
        typer.Option("--due", help="When it is due, so that only the files of that time are read.", show_default=False),
    ] = None,
) -> None:
    """Recall messages that are still in files, by id or key. What a broker has taken is recalled with `orbitmq timer recall`."""
    if (message_id is None) == (key is None):
        raise typer.BadParameter("give --id or --key, one of them")
    due_ms = None if due is None else parse_due_ms("--due", due, SystemClock().now_ms())

    async def work(client: Client) -> tuple[RecalledRow, ...]:
        return await client.far_table.recall(topic, message_id=message_id, key=key, due=due_ms)

    found = run(work)
    rows = [
        {
            "message_id": row.message_id,
            "verdict": row.verdict.value,
            "due": _at(row.due_ms),
            "brokers": " ".join(row.brokers),
        }
        for row in found
    ]
    show_rows(rows, columns=RECALL_COLUMNS)
    if not all(row.verdict.value in ("recalled", "already_recalled") for row in found):
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def release(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker that is away.")],
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="Start of the bucket, as `shares` shows it.")],
    first: Annotated[int, typer.Argument(metavar="FIRST", help="First row of the share.")] = 0,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="The broker never comes back: do not wait for the rows that it has.")
    ] = False,
) -> None:
    """Let other brokers take the rest of a share whose broker is away for long."""

    bucket_ms = parse_instant_ms("BUCKET", bucket, SystemClock().now_ms())

    async def work(client: Client) -> ShareReleased:
        return await client.far_table.release(broker, bucket_ms, first, give_up=give_up)

    answer = run(work)
    show_record(
        {
            "verdict": answer.verdict.value,
            "stored": answer.stored,
            "allowed": answer.allowed,
            "reason": answer.reason,
        }
    )
    if answer.verdict.value not in ("ok", "repeated"):
        raise typer.Exit(ExitCode.FAILED)
    if answer.allowed > answer.stored:
        note(
            f"rows {answer.stored} to {answer.allowed - 1} may be in the log of {broker}; "
            + ("nobody delivers those that are not" if give_up else "they wait for it")
        )
