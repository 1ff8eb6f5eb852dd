"""`orbitmq store`: check, dump, stat of a store directory, without a server and without changing a byte; mending it from another copy; and
leaving it for RocketMQ. Backups are in `backups`.

Rules of this file
1. But for `hand-over` and `mend` a store is opened for reading only, ours or RocketMQ's, also while a server runs on it; what a running
   server writes meanwhile may show as a torn end.
2. `check` ends with 0 when the store is sound and 1 with findings; notes (a torn end, an `abort` file) are no findings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.servers.serving import ConfigOption, SetOption
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, print_json, show_record, show_rows
from orbitmq.cli.stores.backups import add_to

if TYPE_CHECKING:
    from orbitmq.server.configuration.settings import ServerSettings
    from orbitmq.store.check import CheckReport

app = typer.Typer(
    help="Store directories: check, dump, stat, backup, verify, restore, mend, hand-over.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
add_to(app)

DirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Root of the store.", exists=True, file_okay=False, readable=True, show_default=False
    ),
]
CommitLogOption = Annotated[
    Path | None,
    typer.Option("--commit-log", help="Folder of the commit log, if not in DIR.", file_okay=False, show_default=False),
]


class What(StrEnum):
    """Part of a store to dump."""

    RECORDS = "records"
    UNITS = "units"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    MARK = "mark"
    TIMERWHEEL = "timerwheel"
    TIMERLOG = "timerlog"
    TIMERCHECK = "timercheck"


@app.command(cls=OutputCommand)
def check(directory: DirectoryArgument, commit_log: CommitLogOption = None) -> None:
    """Check a store: every record, consume queue unit, index entry and pending timer against the commit log."""
    import msgspec

    from orbitmq.server.roles.takeover import facts_of
    from orbitmq.store.check import Finding, check_store
    from orbitmq.store.files import OsFiles
    from orbitmq.timing.rocketmq.check import check_timers

    _expect_store(directory, commit_log)
    report = check_store(directory, OsFiles(), commit_log=commit_log, timers=check_timers)
    report.notes += [
        Finding(".", f"a broker of ours does not start on it: {fact.found} ({fact.remedy})")
        for fact in facts_of(directory, OsFiles(), commit_log)
    ]
    if chosen_output() is Output.JSON:
        print_json(msgspec.to_builtins(report))
    else:
        _show_report(report)
    if report.findings:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=OutputCommand)
def stat(directory: DirectoryArgument, commit_log: CommitLogOption = None) -> None:
    """Show what a store holds: files, messages of each queue, pending delay levels and timers."""
    import msgspec

    from orbitmq.cli.shared.instants import instant
    from orbitmq.clock import SystemClock
    from orbitmq.store.files import OsFiles
    from orbitmq.store.stat import stat_store
    from orbitmq.timing.rocketmq.stat import stat_timers

    _expect_store(directory, commit_log)
    facts: dict[str, Any] = msgspec.to_builtins(stat_store(directory, OsFiles(), commit_log=commit_log))
    timers = msgspec.to_builtins(stat_timers(directory, OsFiles(), SystemClock().now_ms(), commit_log=commit_log))
    facts["timers"] = timers
    facts["closed_orderly"] = not (directory / "abort").exists()
    facts["bytes_on_disk"] = sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
    if chosen_output() is Output.JSON:
        show_record(facts)
        return
    queues, levels = facts.pop("queues"), facts.pop("levels")
    del facts["timers"]
    show_record(facts)
    note("")
    for queue in queues:
        queue["last_stored"] = instant(queue["last_store_timestamp"])
    columns = ("topic", "queue_id", "min_offset", "max_offset", "message_count", "message_bytes", "last_stored")
    show_rows(queues, columns=columns, empty="no queues")
    if levels:
        note("")
        for level in levels:
            level["first_due"] = instant(level["first_due_ms"] or 0)
            level["last_due"] = instant(level["last_due_ms"] or 0)
        show_rows(levels, columns=("level", "next_offset", "max_offset", "pending_count", "first_due", "last_due"))
    if timers is not None:
        note("")
        _show_timers(timers)


def _show_timers(timers: dict[str, Any]) -> None:
    from orbitmq.cli.shared.instants import instant

    due = timers.pop("due")
    for name in ("read_time", "first_due", "last_due"):
        timers[name] = instant(timers.pop(f"{name}_ms") or 0)
    show_record({f"timer_{name}": value for name, value in timers.items()})
    note("")
    rows = [{"due_within_s": "overdue", "count": timers["overdue_count"]}]
    rows += [{"due_within_s": bucket["within_s"] or "later", "count": bucket["count"]} for bucket in due]
    show_rows(rows, columns=("due_within_s", "count"))


@app.command(name="hand-over", cls=OutputCommand)
def hand_over(
    directory: DirectoryArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is; change nothing.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Make the timer files of a store that nobody serves exact, so that RocketMQ can start on it.

    An orderly stop does this by itself. After a kill RocketMQ refuses the store until this has run; orbitmq does not need it.
    """
    import msgspec

    from orbitmq.clock import SystemClock
    from orbitmq.server.roles.handing_over import hand_over, look
    from orbitmq.store.files import OsFiles

    own = _settings_of(directory, config, settings)
    _expect_store(directory, own.store.store_path_commit_log)
    if dry_run:
        found = look(directory, OsFiles(), SystemClock().now_ms(), commit_log=own.store.store_path_commit_log)
    else:
        found = hand_over(own)
    if chosen_output() is Output.JSON:
        print_json(msgspec.to_builtins(found))
    else:
        show_record(msgspec.to_builtins(found))
    if not found.is_exact:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=OutputCommand)
def mend(
    directory: DirectoryArgument,
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="HOST:PORT", help="Main port of a broker with a copy of this log.", show_default=False
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is damaged; change nothing.")] = False,
    commit_log: CommitLogOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Fetch what is damaged in the commit log of a store that nobody serves from a broker with a copy of that log.

    What comes is checked, and written only where it fits exactly. A running broker does this by itself, and a start does it for what it
    meets. Ends with 1 when something stays damaged. With --config calls are signed, and go over TLS, as the broker's own.
    """
    import asyncio

    import msgspec

    from orbitmq.server.connections.outbound import split_address
    from orbitmq.server.replication.mending_by_hand import mend_by_hand

    try:
        split_address(source)
    except ValueError as error:
        raise typer.BadParameter(f"--from: {error}") from None
    own = _settings_of(directory, config, settings)
    log_directory = commit_log or own.store.store_path_commit_log
    _expect_store(directory, log_directory)
    found = asyncio.run(mend_by_hand(own, log_directory, source, dry_run=dry_run))
    rows = [msgspec.to_builtins(place) for place in found]
    if chosen_output() is Output.JSON:
        print_json(rows)
    else:
        columns = ("position", "size_bytes", "came_from", "why", "refusals")
        show_rows(rows, columns=columns, empty="nothing is damaged")
    if not all(place.came_from for place in found):
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=OutputCommand)
def dump(
    directory: DirectoryArgument,
    what: Annotated[What, typer.Option("--what", help="Part of the store.")] = What.RECORDS,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.", show_default=False)] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue.", show_default=False)] = None,
    begin: Annotated[
        int, typer.Option("--from", min=0, help="Physical offset; of units the queue offset, of timers position or ms.")
    ] = 0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="At most so many.", show_default=False)] = None,
    commit_log: CommitLogOption = None,
) -> None:
    """Print what stands in the files, one line each; ends with 1 when there is damage among it."""
    from orbitmq.store import dump as dumps
    from orbitmq.store.files import OsFiles
    from orbitmq.timing.rocketmq import inspection as timer_dumps

    _expect_store(directory, commit_log)
    files = OsFiles()
    items: Iterable[Mapping[str, Any]]
    match what:
        case What.RECORDS:
            items = dumps.dump_records(
                files, directory, start=begin, topic=topic, queue_id=queue, commit_log=commit_log
            )
        case What.UNITS:
            if topic is None or queue is None:
                raise typer.BadParameter("--what units needs --topic and --queue")
            items = dumps.dump_units(files, directory, topic, queue, first=begin)
        case What.INDEX:
            items = dumps.dump_index(files, directory)
        case What.CHECKPOINT:
            items = [dumps.dump_checkpoint(files, directory)]
        case What.MARK:
            mark = dumps.dump_mark(files, directory)
            items = [] if mark is None else [mark]
        case What.TIMERWHEEL:
            items = timer_dumps.dump_timer_wheel(files, directory, since_ms=begin)
        case What.TIMERLOG:
            items = timer_dumps.dump_timer_log(files, directory, start=begin)
        case What.TIMERCHECK:
            items = [timer_dumps.dump_timer_checkpoint(files, directory)]
    _print_items(items, count)


def _print_items(items: Iterable[Mapping[str, Any]], count: int | None) -> None:
    damaged = False
    for number, item in enumerate(items):
        if count is not None and number >= count:
            break
        damaged = damaged or item.get("kind") == "damage"
        sys.stdout.write(_line(item, chosen_output()) + "\n")
    if damaged:
        raise typer.Exit(ExitCode.FAILED)


def _line(item: Mapping[str, Any], output: Output) -> str:
    import msgspec

    from orbitmq.cli.shared.message_view import body_text

    values = dict(item)
    if isinstance(body := values.get("body"), bytes):
        values["body"], values["bodyEncoding"] = body_text(body)
    if output is Output.JSON:
        return msgspec.json.encode(values).decode()
    return " ".join(f"{name}={_plain(value)}" for name, value in values.items() if value not in ("", None, {}))


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={part}" for name, part in value.items()) + "}"
    return str(value).replace("\r", " ").replace("\n", " ")


def _show_report(report: CheckReport) -> None:
    import msgspec

    values: dict[str, Any] = msgspec.to_builtins(report)
    lists = ("findings", "notes", "findings_left_out")
    show_record({name: value for name, value in values.items() if name not in lists})
    for text in report.notes:
        note(f"note: {text}")
    for finding in report.findings:
        note(f"finding: {finding}")
    if report.findings_left_out:
        note(f"finding: {report.findings_left_out} more")
    count = len(report.findings) + report.findings_left_out
    note(f"{report.root}: {count} findings" if count else f"{report.root}: sound")


def _settings_of(directory: Path, config: ConfigOption, settings: SetOption) -> ServerSettings:
    """What a broker would serve that directory with."""
    from orbitmq.server.configuration.settings import Overrides, Role, load_settings

    return load_settings(
        roles=[Role.BROKER],
        config=config,
        environment={},
        flags=settings or [],
        overrides=Overrides(data=directory, host=None, nameserver_port=None, broker_port=None),
    )


def _expect_store(directory: Path, commit_log: Path | None) -> None:
    from orbitmq.errors import StoreError

    if not (commit_log or directory / "commitlog").is_dir():
        raise StoreError(
            f"{directory} holds no commit log", remedy="name the root of a store, the folder above `commitlog`"
        )
