"""`orbitmq cluster check`: what is missing in a cluster, of brokers and on some of them, and settings that differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, ExpectOption, expected, run
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import show_rows

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker

COLUMNS: Final = ("what", "name", "cluster", "on", "missing_on", "finding")


def check(
    cluster: ClusterOption = None,
    expect: ExpectOption = None,
    settings: Annotated[
        bool, typer.Option("--settings/--no-settings", help="Compare settings; without, they may differ.")
    ] = True,
) -> None:
    """Look for brokers that are expected and missing, registered brokers that do not answer, topics and groups that some brokers of
    a cluster have and others lack, and settings that differ between its brokers. Ends with 1 when there is one.

    A topic made for one broker on purpose is shown too. `orbitmq topic complete` and `orbitmq group complete` fill such gaps.
    Settings are those of delay levels, timers, flush, retention, what is taken in, and access.
    """
    names = expected(expect)

    async def work(client: Client) -> list[dict[str, object]]:
        from orbitmq.cli.asking.expected_brokers import missing_brokers
        from orbitmq.cli.clusters.gaps import Kind, read_gaps

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
        if settings:
            rows += await _differing(client, [each for each in brokers if not (each.is_master and each.name in absent)])
        return rows

    rows = run(work)
    show_rows(
        rows, columns=COLUMNS, empty="nothing is missing, and no setting differs" if settings else "nothing is missing"
    )
    if rows:
        raise typer.Exit(ExitCode.FAILED)


async def _differing(client: Client, brokers: Sequence[Broker]) -> list[dict[str, object]]:
    """A row for each setting that differs, and for each slave that does not answer."""
    import asyncio

    from orbitmq.cli.clusters.setting_differences import differences_of, finding, label
    from orbitmq.errors import ConnectionLostError, RequestTimeoutError

    async def ask(broker: Broker) -> Mapping[str, str] | str:
        try:
            return await client.admin.broker_config(broker.address)
        except (ConnectionLostError, RequestTimeoutError) as error:
            return str(error)

    answers = list(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    rows: list[dict[str, object]] = [
        {
            "what": "broker",
            "name": label(broker),
            "cluster": broker.cluster,
            "finding": f"silent: it is registered at {broker.address} and does not answer: {answer}",
        }
        for broker, answer in answers
        if isinstance(answer, str)
    ]
    rows += [
        {
            "what": "setting",
            "name": found.key,
            "cluster": found.cluster,
            "values": {value: list(names) for value, names in found.brokers.items()},
            "finding": finding(found),
        }
        for found in differences_of([(broker, answer) for broker, answer in answers if not isinstance(answer, str)])
    ]
    return rows
