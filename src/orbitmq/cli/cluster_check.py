"""`orbitmq cluster check`: which brokers of a cluster are missing or do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from orbitmq.cli.cluster_access import ClusterOption, ExpectOption, expected, run
from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.output import show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client

COLUMNS: Final = ("what", "name", "finding")


def check(cluster: ClusterOption = None, expect: ExpectOption = None) -> None:
    """Look for brokers that are expected and missing, and for registered brokers that do not answer. Ends with 1 when there is one."""
    names = expected(expect)

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.cli.expected_brokers import missing_brokers

        if not names:
            await client.admin.masters(cluster)  # nothing at all is an error that says so
        brokers = await client.admin.brokers(cluster)
        missing = await missing_brokers(client, [*names, *sorted({each.name for each in brokers} - set(names))])
        rows: list[dict[str, object]] = [
            {
                "what": "broker",
                "name": each.broker,
                "expected": each.broker in names,
                "finding": f"{each.absence}: {each.text}",
            }
            for each in missing
        ]
        return rows

    rows = run(work)
    show_rows(rows, columns=COLUMNS, empty="nothing is missing")
    if rows:
        raise typer.Exit(ExitCode.FAILED)
