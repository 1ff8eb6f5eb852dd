"""`orbitmq cluster export` and `import`: topics, groups, users, policies, offsets and recurring messages as a file, and back.

Rules of this file
1. A file is written whole or not at all, and only its owner may read it. So is a cluster: where something that should be in the file
   cannot be read, nothing is written.
2. A file is understood before a server hears of it. An import always ends with its account, also one that failed.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, ExpectOption, end_if_missing, expected, run
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.input_file import read_whole
from orbitmq.cli.shared.output import note, show_done, show_rows
from orbitmq.cli.shared.output_file import write_private
from orbitmq.errors import ConfigurationError
from orbitmq.limits.cli import CLUSTER_FILE_BYTES_MAX

if TYPE_CHECKING:
    from orbitmq.cli.asking.expected_brokers import MissingBroker
    from orbitmq.cli.clusters.cluster_document import ClusterDocument, ClusterPart
    from orbitmq.cli.clusters.cluster_import import Imported
    from orbitmq.client import Client

OnlyOption = Annotated[
    str | None,
    typer.Option("--only", metavar="PARTS", help="Some of topics,groups,access,offsets,recurring.", show_default=False),
]


def export_cluster(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="To be written; - is standard output.", show_default=False)
    ],
    only: OnlyOption = None,
    passwords: Annotated[
        bool, typer.Option("--passwords", help="Passwords of users as well, which brokers tell to super users only.")
    ] = False,
    cluster: ClusterOption = None,
    expect: ExpectOption = None,
) -> None:
    """Write topics, groups, users and policies, offsets of groups and recurring messages into a JSON file. No messages.

    The file says what it does not contain. Where a broker is expected and missing, nothing is written, and the command ends with 1.
    """
    from orbitmq.cli.clusters.cluster_document import encode, parts_named

    parts, names = parts_named(only), expected(expect)

    async def work(client: Client) -> tuple[ClusterDocument | None, list[MissingBroker]]:
        from orbitmq.cli.asking.expected_brokers import missing_brokers
        from orbitmq.cli.clusters.cluster_export import read_cluster

        missing = await missing_brokers(client, names)
        if missing:
            return None, missing
        named = only is not None
        return await read_cluster(client, parts, cluster=cluster, passwords=passwords, named=named), []

    document, missing = run(work)
    end_if_missing(missing)
    assert document is not None
    data = encode(document)
    if file == "-":
        sys.stdout.write(data.decode())
    else:
        try:
            write_private(Path(file), data)
        except OSError as error:
            raise ConfigurationError(
                f"{file} cannot be written: {error.strerror}", remedy="check its directory"
            ) from error
    for part, why in document.left_out.items():
        note(f"without {part}: {why}")
    untold = sum(user.password is None for user in document.users or ())
    if passwords and untold:
        note(f"without the passwords of {untold} users: brokers of orbitmq tell them to super users only")
    if file != "-":
        counts = {name: len(rows) for name, rows in _lists(document).items()}
        text = ", ".join(f"{count} {name}" for name, count in counts.items())
        show_done(f"{file}: {text}", {"file": file, **counts, "left_out": document.left_out})


def import_cluster(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `cluster export`.", show_default=False)],
    only: OnlyOption = None,
    rename_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--rename-broker",
            metavar="OLD=NEW",
            help="What the file has for broker OLD goes to broker NEW; may be given several times.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
) -> None:
    """Make what a file of `cluster export` names and the cluster lacks, and change what differs. Nothing is deleted.

    Each topic, group, user, policy and so on is created, changed, the same or refused, on each broker of the name that the file gives, or
    --rename-broker instead.
    Offsets only go forward, at most to the end of a queue. Doing it again changes nothing more. Ends with 1 where something was refused.
    """
    from orbitmq.cli.clusters.cluster_document import parts_named

    parts = parts_named(only)
    document = _read(file)
    if only is not None:
        _check_has(file, document, parts)
    if rename_broker:
        document = _renamed(file, document, rename_broker)
    done: list[Imported] = []

    async def work(client: Client) -> None:
        nonlocal done
        from orbitmq.cli.clusters.cluster_import import Import

        importing = Import(client, document, dry_run=dry_run)
        done = importing.done
        await importing.run(parts)

    try:
        run(work)
    except BaseException:
        if done:
            _show(done, dry_run)
        raise
    _show(done, dry_run)
    if any(each.done.outcome == "refused" for each in done):
        raise typer.Exit(ExitCode.FAILED)


def _show(done: list[Imported], dry_run: bool) -> None:
    rows: list[dict[str, object]] = [
        {
            "what": each.what,
            "name": each.name,
            "broker": each.broker,
            "outcome": each.done.outcome.value,
            "detail": each.done.detail,
            "dry_run": dry_run,
        }
        for each in done
    ]
    show_rows(rows, columns=("what", "name", "broker", "outcome", "detail"), empty="there was nothing to import")
    counts = Counter(row["outcome"] for row in rows)
    if counts:
        note(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if dry_run:
        note("nothing was changed (--dry-run)")


def _lists(document: ClusterDocument) -> dict[str, list[object]]:
    names = ("topics", "groups", "users", "policies", "offsets", "recurring")
    return {name: rows for name in names if (rows := getattr(document, name)) is not None}


def _check_has(file: Path, document: ClusterDocument, parts: tuple[ClusterPart, ...]) -> None:
    lists = _lists(document)
    for part in parts:
        if ("users" if part == "access" else part) not in lists:
            why = document.left_out.get(part, "it was exported without")
            raise ConfigurationError(f"{file} has no {part}: {why}", remedy="nothing was done")


def _renamed(file: Path, document: ClusterDocument, given: list[str]) -> ClusterDocument:
    from orbitmq.cli.clusters.cluster_document import renamed

    pairs = [text.partition("=") for text in given]
    names = {old: new for old, _, new in pairs}
    if not all(old and new for old, _, new in pairs) or len(names) < len(pairs):
        raise ConfigurationError(
            f"--rename-broker {' '.join(given)!r} does not name a broker for each",
            remedy="write OLD=NEW, each OLD once",
        )
    try:
        return renamed(document, names)
    except ValueError as error:
        raise ConfigurationError(f"{file}, with --rename-broker: {error}", remedy="nothing was done") from None


def _read(file: Path) -> ClusterDocument:
    from orbitmq.cli.clusters.cluster_document import decode

    data = read_whole(file, CLUSTER_FILE_BYTES_MAX)
    try:
        return decode(data)
    except ValueError as error:
        raise ConfigurationError(f"{file}: {error}", remedy="nothing was done") from None
