"""`orbitmq cluster check`: what is missing in a cluster: brokers, and topics and groups on some of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from orbitmq.cli.cluster_access import ClusterOption, ExpectOption, expected, run
from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.output import show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client

COLUMNS: Final = ("what", "name", "cluster", "on", "missing_on", "finding")


def check(cluster: ClusterOption = None, expect: ExpectOption = None) -> None:
    """Look for brokers that are expected and missing, registered brokers that do not answer, and topics and groups that some brokers of
    a cluster have and others lack. Ends with 1 when there is one.

    A topic made for one broker on purpose is shown too. `orbitmq topic complete` and `orbitmq group complete` fill such gaps.
    """
    names = expected(expect)

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.cli.expected_brokers import missing_brokers
        from orbitmq.cli.gaps import Kind, read_gaps

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
        absent = {each.broker for each in missing}
        asked = [each for each in brokers if each.is_master and each.name not in absent]
        for kind in Kind:
            for gap in await read_gaps(client, kind, asked):
                rows.append(
                    {
                        "what": str(kind),
                        "name": gap.name,
                        "cluster": gap.cluster,
                        "on": list(gap.settings),
                        "missing_on": list(gap.lacking),
                        "finding": f"complete it: orbitmq {kind} complete {gap.name}",
                    }
                )
        return rows

    rows = run(work)
    show_rows(rows, columns=COLUMNS, empty="nothing is missing")
    if rows:
        raise typer.Exit(ExitCode.FAILED)
