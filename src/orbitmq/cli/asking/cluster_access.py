"""How commands reach a cluster: a client for the length of a command, and the options that narrow down what is asked.

Rules of this file
1. Commands name a name server; brokers are found through it. What they ask is in the client's `Admin`.
2. Every call has a time limit, and an error says what was being done.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from orbitmq.cli.asking.completing import complete_clusters, complete_groups, complete_topics
from orbitmq.cli.shared.chosen import chosen, chosen_tls

if TYPE_CHECKING:
    from orbitmq.cli.asking.contexts import Target
    from orbitmq.cli.asking.expected_brokers import MissingBroker
    from orbitmq.client import Client, ClientOptions

BrokerOption = Annotated[
    str | None,
    typer.Option("--broker", "-b", help="Only this broker: its name, or host:port.", show_default=False),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Only brokers of this cluster.", show_default=False, autocompletion=complete_clusters
    ),
]
ExpectOption = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="BROKERS",
        help='Brokers that have to be there, `;` between; "" for none. Else those of the context.',
        show_default=False,
    ),
]
TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=complete_topics),
]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", help="Only this topic.", show_default=False, autocompletion=complete_topics),
]
GroupArgument = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False, autocompletion=complete_groups),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Result = TypeVar("Result")


def target() -> Target:
    """The cluster that the running command asks."""
    from orbitmq.cli.asking.contexts import resolve

    return resolve(chosen("name_servers"), chosen("context"), chosen("timeout_ms"), os.environ, tls=chosen_tls())


def expected(option: str | None) -> tuple[str, ...]:
    """Names of the brokers that have to be there: what the option says, else the context that is asked."""
    from orbitmq.cli.asking.expected_brokers import expected_names

    return target().expected_brokers if option is None else expected_names(option)


def note_missing(missing: Sequence[MissingBroker]) -> None:
    """Say of each expected broker that is missing what is the matter."""
    from orbitmq.cli.shared.output import note

    for each in missing:
        note(f"broker {each.broker} is expected and missing: {each.text}")


def end_if_missing(missing: Sequence[MissingBroker]) -> None:
    """The same, and end with 1 where there is one."""
    from orbitmq.cli.shared.exit_codes import ExitCode

    note_missing(missing)
    if missing:
        raise typer.Exit(ExitCode.FAILED)


def client_options(cluster: Target) -> ClientOptions:
    """How a client of this cluster connects."""
    from orbitmq.client import ClientOptions

    return ClientOptions(
        connect_timeout_ms=cluster.timeout_ms,
        request_timeout_ms=cluster.timeout_ms,
        admin_timeout_ms=cluster.timeout_ms,
        credentials=cluster.credentials(),
        tls=cluster.settings.tls_context() or False,
    )


def run(work: Callable[[Client], Awaitable[Result]]) -> Result:
    """Run `work` with a client of the cluster and close its connections."""
    import asyncio

    from orbitmq.client import connect

    cluster = target()

    async def inside() -> Result:
        async with connect(cluster.name_servers, options=client_options(cluster)) as client:
            return await work(client)

    return asyncio.run(inside())
