"""`orbitmq transaction`: messages that wait for their producers to commit or roll back: list, show, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.asking.cluster_access import TopicOption, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import instant
from orbitmq.cli.shared.output import note, show_done, show_record, show_rows
from orbitmq.limits.transactions import TRANSACTION_PAGE_MAX

if TYPE_CHECKING:
    from orbitmq.client import Client, HalfMessage, TransactionView

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Message id that the sender has, or offset message id.", show_default=False)
]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="Only this producer group.", show_default=False)]

LIST_COLUMNS: Final = ("stored", "topic", "group", "message_id", "checks", "next_check", "broker")

app = typer.Typer(
    help="Transactions: list what is undecided, show one, resume its checks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("list", cls=ClusterCommand)
def list_transactions(
    topic: TopicOption = None,
    group: GroupOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Most to show.")] = 50,
) -> None:
    """List what is undecided: broker by broker, in the order in which it was stored or its producers were asked last."""
    rows: list[dict[str, object]] = []

    async def work(client: Client) -> None:
        page_count = min(count + 1, TRANSACTION_PAGE_MAX)
        async for view in client.transactions.list(topic=topic, group=group, page_count=page_count):
            if len(rows) == count:
                note(f"and more; --count shows more than {count}")
                return
            rows.append(_row(view))

    run(work)
    show_rows(rows, columns=LIST_COLUMNS, empty="nothing is undecided")


@app.command(cls=ClusterCommand)
def show(transaction: IdArgument) -> None:
    """Show one transaction with its message, and what became of it."""

    async def work(client: Client) -> HalfMessage | None:
        return await client.transactions.get(transaction)

    found = run(work)
    if found is None:
        note(f"no broker knows a transaction {transaction!r}")
        raise typer.Exit(ExitCode.NOT_FOUND)
    from orbitmq.cli.shared.message_view import table_view, with_contents

    record = with_contents(_row(found.transaction), found.tag, found.properties, found.body)
    show_record(record if chosen_output() is Output.JSON else table_view(record))


@app.command(cls=ClusterCommand)
def resume(transaction: IdArgument) -> None:
    """Begin anew to ask the producers of a transaction that is undecided, or was given up."""

    async def work(client: Client) -> TransactionView:
        return await client.transactions.resume(transaction)

    view = run(work)
    show_done(f"producers of group {view.group} are asked about {view.message_id} from the start", _row(view))


def _row(view: TransactionView) -> dict[str, object]:
    """A transaction for a table or JSON."""
    return {
        "state": view.state.value,
        "stored": instant(view.stored_ms),
        "stored_ms": view.stored_ms,
        "topic": view.topic,
        "group": view.group,
        "message_id": view.message_id,
        "checks": view.check_count,
        "next_check": None if view.next_check_ms is None else instant(view.next_check_ms),
        "next_check_ms": view.next_check_ms,
        "size": view.size,
        "broker": view.broker_name,
        "offset_message_id": view.offset_message_id,
    }
