"""`orbitmq store backup`, `verify` and `restore`: a copy of a store that a broker may serve, and the way back.

Rules of this file
1. The store is read and its broker never asked, so that a backup needs neither rights nor a port; it runs where the directory is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, print_json, show_record

if TYPE_CHECKING:
    from orbitmq.server.backup.restoring import RestoreReport

SourceArgument = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="Root of the store; its broker may go on.", show_default=False)
]
BackupArgument = Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of the backup.", show_default=False)]
LogOption = Annotated[
    Path | None,
    typer.Option("--commit-log", help="Folder of the commit log, if not in the store.", show_default=False),
]


def backup(
    source: SourceArgument,
    directory: BackupArgument,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Read all of the backup afterwards, as `store verify` and `store check` do."
        ),
    ] = True,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also over a backup that has what the store has lost: the store counts.")
    ] = False,
    commit_log: LogOption = None,
) -> None:
    """Copy a store, also while a broker serves it; into the directory of an earlier backup only what is new.

    Everything that was acknowledged before is in it. Until it is whole, an earlier backup there stays as it is. Ends with 1 when the check
    finds something; a file that is not as it was copied is copied anew by the next run.
    """
    import msgspec

    from orbitmq.clock import SystemClock
    from orbitmq.server.backup.directory import STORE
    from orbitmq.server.backup.restoring import verify_backup
    from orbitmq.server.backup.taking import take_backup
    from orbitmq.store.files import OsFiles

    report = take_backup(OsFiles(), SystemClock(), source, directory, commit_log=commit_log, replace=replace)
    facts: dict[str, Any] = msgspec.to_builtins(report)
    verified = verify_backup(OsFiles(), directory) if check else None
    findings = [*map(_damaged, verified.damaged), *_findings(directory / STORE)] if verified is not None else None
    facts["findings"] = findings
    if chosen_output() is Output.JSON:
        print_json(facts)
    else:
        show_record({name: value for name, value in facts.items() if name not in ("notes", "findings")})
        for text in report.notes:
            note(f"note: {text}")
        for finding in findings or ():
            note(f"finding: {finding}")
        if verified is not None:
            _note_repair(verified)
        note(
            f"{directory}: "
            + ("not checked" if findings is None else f"{len(findings)} findings" if findings else "sound")
        )
    if findings:
        raise typer.Exit(ExitCode.FAILED)


def _findings(store: Path) -> list[str]:
    """What `store check` finds in the copy, in words."""
    from orbitmq.store.check import check_store
    from orbitmq.store.files import OsFiles
    from orbitmq.timing.rocketmq.check import check_timers

    report = check_store(store, OsFiles(), timers=check_timers)
    more = [f"{report.findings_left_out} more"] if report.findings_left_out else []
    return [*map(str, report.findings), *more]


def _damaged(path: str) -> str:
    return f"{path} is not as it was copied"


def _note_repair(report: RestoreReport) -> None:
    """What becomes of files that are not as they were copied."""
    if report.not_noted:
        note(f"the next backup does not copy them anew: that could not be written down there ({report.not_noted})")
    elif report.damaged:
        note("the next backup copies them anew, as far as the store still has them")


def verify(directory: BackupArgument) -> None:
    """Compare every file of a backup with its digest; ends with 1 when one is not as it was copied. The next backup copies it anew."""
    from orbitmq.server.backup.restoring import verify_backup
    from orbitmq.store.files import OsFiles

    report = verify_backup(OsFiles(), directory)
    _show(report)
    if report.damaged:
        raise typer.Exit(ExitCode.FAILED)


def restore(
    directory: BackupArgument,
    target: Annotated[
        Path, typer.Argument(metavar="DIR", help="Root of the new store: empty, or not there.", show_default=False)
    ],
    commit_log: LogOption = None,
) -> None:
    """Make a store of a backup, in an empty directory; every file is compared with its digest on the way."""
    from orbitmq.server.backup.restoring import restore_backup
    from orbitmq.store.files import OsFiles

    _show(restore_backup(OsFiles(), directory, target, commit_log=commit_log))


def _show(report: RestoreReport) -> None:
    import msgspec

    from orbitmq.cli.shared.instants import instant

    facts: dict[str, Any] = msgspec.to_builtins(report)
    if chosen_output() is Output.JSON:
        print_json(facts)
        return
    damaged = facts.pop("damaged")
    facts["taken_at"] = instant(facts.pop("taken_at_ms"))
    show_record(facts)
    for path in damaged:
        note(f"damaged: {path}")
    _note_repair(report)
    note(
        f"{report.directory}: "
        + (f"{len(damaged)} files are not as they were copied" if damaged else "as it was copied")
    )


def add_to(app: typer.Typer) -> None:
    """Make these commands of `orbitmq store`."""
    for command in (backup, verify, restore):
        app.command(cls=OutputCommand)(command)
