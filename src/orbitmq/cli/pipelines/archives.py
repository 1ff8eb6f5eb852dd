"""`orbitmq archive`: looking after the tables that `orbitmq pipeline archive` writes, without Spark and without a cluster.

Rules of this file
1. `check` ends with 1 where a row is there twice; offsets without a row are shown, for filters and allowed losses leave some.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Annotated

import msgspec
import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import print_json, show_done, show_rows
from orbitmq.errors import ConfigurationError

app = typer.Typer(
    help="Archives: check, compact, vacuum, delete the rows of a key, keep latest rows, import old ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

ArchiveArgument = Annotated[
    str, typer.Argument(metavar="URL", help="Directory or URL of an archive.", show_default=False)
]


@app.command(cls=OutputCommand)
def check(archive: ArchiveArgument) -> None:
    """Count offsets against rows, queue by queue."""
    upkeep = _upkeep()
    found = [msgspec.to_builtins(one) for one in upkeep.counts(archive)]
    if chosen_output() is Output.JSON:
        print_json(found)
    else:
        show_rows(found, columns=upkeep.QueueCount.__struct_fields__, empty="the archive has no rows")
    if any(one["twice"] for one in found):
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=OutputCommand)
def compact(archive: ArchiveArgument) -> None:
    """Merge small files of a day; readers and runs go on meanwhile."""
    done = _upkeep().compact(archive)
    show_done(f"{done['files_before']} files became {done['files_after']}", done)


@app.command(cls=OutputCommand)
def vacuum(
    archive: ArchiveArgument,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="SPAN", help="Keep what is younger, and versions that need it.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
) -> None:
    """Remove files that the table does not need any more, or never got."""
    from orbitmq.instants import parse_span_ms

    removed = _upkeep().vacuum(archive, parse_span_ms("--older-than", older_than), dry_run=dry_run)
    show_done(f"{len(removed)} files {'would go' if dry_run else 'removed'}", {"files": removed, "dry_run": dry_run})


@app.command(name="delete-key", cls=OutputCommand)
def delete_key(
    archive: ArchiveArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only of this topic.", show_default=False)
    ] = None,
) -> None:
    """Delete the rows of one key; earlier versions have them until `vacuum`."""
    rows = _upkeep().delete_key(archive, key, topic)
    show_done(f"{rows} rows deleted", {"rows": rows})


@app.command(cls=OutputCommand)
def latest(
    archive: ArchiveArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="URL", help="The table of latest rows; made if there is none.", show_default=False
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only these; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Keep the latest row of each key in a table of its own; run again, it takes what is new."""
    rows = _upkeep("latest").keep_latest(archive, to, tuple(topic or ()))
    show_done(f"{rows} rows merged", {"rows": rows})


@app.command(name="import", cls=OutputCommand)
def import_old(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="Directory or URL of an archive from before Delta tables.", show_default=False
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", help="Directory or URL of the table; made if there is none.", show_default=False),
    ],
) -> None:
    """Take an archive from before Delta tables over into one, once; the next `pipeline archive` into it goes on behind."""
    done = _upkeep("importing").import_archive(old, new)
    text = f"{done.rows} rows imported in {done.files} files, and {done.quarantined} lines of the quarantine"
    show_done(text, msgspec.to_builtins(done))


def _upkeep(name: str = "upkeep") -> ModuleType:
    try:
        return importlib.import_module(f"orbitmq.spark.pipelines.archiving.{name}")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"archives need {error.name}, which is not installed", remedy="pip install 'orbitmq[spark]'"
        ) from error
