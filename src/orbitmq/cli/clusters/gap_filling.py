"""`orbitmq topic complete` and `orbitmq group complete`: make a topic or a group on the brokers of its cluster that lack it.

Rules of this file
1. It gets the settings of those that have it. Where these differ nothing is guessed: it is refused until `--like` names one.
2. A broker that is registered and does not answer ends it with an error, before anything is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, run
from orbitmq.cli.asking.completing import complete_groups, complete_topics
from orbitmq.cli.clusters.gaps import Gap, Kind, gaps_of, read_configs
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client

LikeOption = Annotated[
    str | None,
    typer.Option("--like", metavar="BROKER", help="Whose settings it gets, where brokers differ.", show_default=False),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]


def complete_topic(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", help="Name of the topic.", show_default=False, autocompletion=complete_topics
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All topics that brokers lack.")] = False,
    like: LikeOption = None,
    cluster: ClusterOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Make a topic on the brokers of its cluster that lack it, as those do that were away when it was made."""
    _complete(Kind.TOPIC, name, every, like, cluster, dry_run)


def complete_group(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP]", help="Name of the group.", show_default=False, autocompletion=complete_groups
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All groups that brokers lack.")] = False,
    like: LikeOption = None,
    cluster: ClusterOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Make a group on the brokers of its cluster that lack it, as those do that were away when it was made."""
    _complete(Kind.GROUP, name, every, like, cluster, dry_run)


def _complete(kind: Kind, name: str | None, every: bool, like: str | None, cluster: str | None, dry_run: bool) -> None:
    if (name is None) is not every:
        raise typer.BadParameter(f"give the name of a {kind}, or --all")

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.errors import NotFoundError

        brokers = await client.admin.masters(cluster)
        found = await read_configs(client, kind, brokers)
        if name is not None and not any(name in configs for configs in found.values()):
            raise NotFoundError(f"no broker has {kind} {name!r}", remedy=f"create it: orbitmq {kind} create {name}")
        gaps = [gap for gap in gaps_of(kind, brokers, found) if name in (None, gap.name)]
        return [await _fill(client, gap, like, dry_run) for gap in gaps]

    rows = run(work)
    columns = (str(kind), "cluster", "brokers", "like", "outcome")
    show_rows(rows, columns=columns, empty=f"all brokers have {f'{kind} {name}' if name else f'all {kind}s'}")
    if dry_run and rows:
        note("nothing was changed (--dry-run)")
    if any(row["refused"] for row in rows):
        raise typer.Exit(ExitCode.FAILED)


async def _fill(client: Client, gap: Gap, like: str | None, dry_run: bool) -> dict[str, object]:
    from orbitmq.cli.clusters.making import make

    config = gap.pattern(like)
    if config is None:
        why = (
            f"broker {like} does not have it"
            if like is not None
            else f"{', '.join(gap.settings)} have different settings: name one with --like"
        )
        outcome = f"refused: {why}"
    elif dry_run:
        outcome = "would be created"
    else:
        for broker in gap.lacking:
            await make(client, config, broker)
        outcome = "created"
    return {
        str(gap.kind): gap.name,
        "cluster": gap.cluster,
        "brokers": list(gap.lacking),
        "like": like or next(iter(gap.settings)),
        "outcome": outcome,
        "refused": config is None,
    }
