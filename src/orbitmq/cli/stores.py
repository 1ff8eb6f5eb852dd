"""`orbitmq store`: check, dump, stat of a store directory, without a server and without changing a byte.

Rules of this file
1. A store is opened for reading only, ours or RocketMQ's, also while a server runs on it; what a running server
   writes meanwhile may show as a torn end.
2. `check` ends with 0 when the store is sound and 1 with findings; notes (a torn end, an `abort` file) are no findings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.output import Output, OutputOption, note, print_json, show_record, show_rows

app = typer.Typer(help="Store directories: check, dump, stat.", no_args_is_help=True)

DirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Root of the store.", exists=True, file_okay=False, readable=True, show_default=False
    ),
]


@app.command()
def check(directory: DirectoryArgument, output: OutputOption = Output.TABLE) -> None:
    """Check a store: every record, consume queue unit and index entry against the commit log."""
    import msgspec

    from orbitmq.store.check import check_store
    from orbitmq.store.files import OsFiles

    report = check_store(directory, OsFiles())
    if output is Output.JSON:
        print_json(msgspec.to_builtins(report))
    else:
        facts = {
            name: value
            for name, value in msgspec.to_builtins(report).items()
            if name not in ("findings", "notes", "findings_left_out")
        }
        show_record(facts, output)
        for text in report.notes:
            note(f"note: {text}")
        for finding in report.findings:
            note(f"finding: {finding}")
        if report.findings_left_out:
            note(f"finding: {report.findings_left_out} more of them")
        count = len(report.findings) + report.findings_left_out
        note(f"{directory}: {count} findings" if count else f"{directory}: sound")
    if report.findings:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def stat(directory: DirectoryArgument, output: OutputOption = Output.TABLE) -> None:
    """Show what a store holds: files, bytes, topics, queues, how it was closed."""
    from orbitmq.cli.store_view import store_stat

    facts = store_stat(directory)
    if output is Output.JSON:
        show_record(facts, output)
        return
    queues = facts.pop("queues")
    assert isinstance(queues, list)
    show_record(facts, output)
    note("")
    show_rows(queues, output, columns=("topic", "queue", "files", "first_unit", "max_offset"), empty="no queues")


@app.command()
def dump(
    directory: DirectoryArgument,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default=False)] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue.", show_default=False)] = None,
    begin: Annotated[int, typer.Option("--from", min=0, help="Start at this physical offset.")] = 0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="At most so many.", show_default=False)] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the records of the commit log in order, one line each; ends with 1 when damage lies between them."""
    from orbitmq.cli.store_view import commit_log
    from orbitmq.cli.tailing import print_message
    from orbitmq.store.files import OsFiles
    from orbitmq.store.inspection import LogItemKind, walk_log

    left = count
    damaged = False
    # A record behind damage is shown when its store time fits; what belongs to the log is for `check` to say.
    for item in walk_log(OsFiles(), commit_log(directory), confirm=lambda record: False, body=True):
        if item.kind is LogItemKind.DAMAGE:
            damaged = True
            note(f"damage at physical offset {item.physical_offset}, {item.size} bytes: {item.problem}")
        record = item.record
        if (
            record is not None
            and item.physical_offset >= begin
            and (topic is None or record.topic == topic)
            and (queue is None or record.queue_id == queue)
        ):
            print_message(record, output)
            if left is not None:
                left -= 1
                if left == 0:
                    break
    if damaged:
        raise typer.Exit(ExitCode.FAILED)
