"""Values that a shell may offer: contexts, and topics, groups and clusters of the cluster that would be asked.

Rules of this file
1. A shell waits: a cluster that does not answer within `CLI_COMPLETION_MS` offers nothing, and no error is shown.
2. A secret that only a command knows is not asked for: it may want something of its user. Nothing is offered then.
3. What the user has typed already decides which cluster is asked, as it will when the command runs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from orbitmq.limits.cli import CLI_COMPLETION_MS

if TYPE_CHECKING:
    from orbitmq.client import Client


def complete_contexts(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
    """Names of contexts."""
    from orbitmq.cli.asking.contexts import contexts_path, load
    from orbitmq.errors import ConfigurationError

    try:
        return _matching(load(contexts_path(os.environ)).contexts, incomplete)
    except ConfigurationError:
        return []


def complete_topics(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
    """Names of topics; those of the system only when their beginning is typed."""
    names = _ask(ctx, lambda client: client.admin.topics())
    return _matching((name for name in names if incomplete or not name.startswith(("%", "rmq_sys_"))), incomplete)


def complete_groups(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
    """Names of consumer groups."""
    return _matching(_ask(ctx, lambda client: client.admin.groups()), incomplete)


def complete_clusters(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
    """Names of clusters."""

    async def names(client: Client) -> list[str]:
        return list((await client.admin.cluster()).cluster_addr_table)

    return _matching(_ask(ctx, names), incomplete)


def complete_users(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
    """Names of users."""

    async def names(client: Client) -> set[str]:
        return {user.username or "" for users in (await client.admin.users()).values() for user in users}

    return _matching(_ask(ctx, names), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(ctx: click.Context, work: Callable[[Client], Awaitable[Iterable[str]]]) -> Iterable[str]:
    import asyncio

    from orbitmq.cli.asking.contexts import Target, resolve
    from orbitmq.cli.shared.chosen import chosen, chosen_tls
    from orbitmq.client import ClientOptions, connect
    from orbitmq.errors import OrbitError

    async def inside(target: Target) -> Iterable[str]:
        options = ClientOptions(
            connect_timeout_ms=CLI_COMPLETION_MS,
            request_timeout_ms=CLI_COMPLETION_MS,
            admin_timeout_ms=CLI_COMPLETION_MS,
            credentials=target.credentials(),
            tls=target.settings.tls_context() or False,
        )
        async with asyncio.timeout(CLI_COMPLETION_MS / 1000), connect(target.name_servers, options=options) as client:
            return await work(client)

    try:
        target = resolve(chosen("name_servers", ctx), chosen("context", ctx), None, os.environ, tls=chosen_tls(ctx))
        if target.settings.secret_command or target.settings.tls_password_command:
            return []
        return asyncio.run(inside(target))
    except (OrbitError, TimeoutError, RuntimeError):
        return []  # rule 1: a shell that completes nothing is better than one that prints errors into the line
