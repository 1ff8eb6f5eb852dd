"""Leaving a store so that RocketMQ can go on with it, when nobody serves it: after a kill, or a stop that found no room.

An orderly stop does the same. Until either has run RocketMQ refuses the store (`timing.rocketmq.fence`).

Rules of this file
1. The store is opened as a broker opens it, recovered, and closed as by an orderly stop. Nothing listens, nothing is delivered.
2. A dry run reads only.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from orbitmq.errors import StoreError
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.connections.descriptors import raise_descriptor_limit
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.roles.broker_role import BrokerRole
from orbitmq.store.files import Files, OsFiles
from orbitmq.timing.rocketmq.fence import is_fenced
from orbitmq.timing.rocketmq.stat import stat_timers


class HandedOver(msgspec.Struct):
    """What a hand-over did, or would do."""

    is_exact: bool
    """Whether RocketMQ may start: it does not refuse the store, and will deliver what is pending."""
    was_exact: bool
    pending_count: int | None
    """Messages in the timer files; None where only a hand-over could tell."""
    far_count: int | None
    """Messages in the far tier, which RocketMQ does not read; None where that was not looked for."""


def look(root: Path, files: Files, now_ms: int, *, commit_log: Path | None = None) -> HandedOver:
    """Whether there is anything to be handed over. Reads only; 2 us for each unit of the timer log."""
    if is_fenced(files, root):
        return HandedOver(is_exact=False, was_exact=False, pending_count=None, far_count=None)
    stat = stat_timers(root, files, now_ms, commit_log=commit_log)
    return HandedOver(
        is_exact=True, was_exact=True, pending_count=0 if stat is None else stat.pending_count, far_count=None
    )


def hand_over(settings: ServerSettings) -> HandedOver:
    """Make the timer files of a store exact, whoever ended how. As long as a start, and what an orderly stop takes.

    Raises StoreError when messages wait in the far tier, and OrbitError and OSError as a start and a stop do; then RocketMQ goes on
    refusing the store."""
    return asyncio.run(_hand_over(settings))


async def _hand_over(settings: ServerSettings) -> HandedOver:
    files, root = OsFiles(), settings.data
    was_exact = not is_fenced(files, root)
    role = BrokerRole(ServerProcess(settings, descriptors=raise_descriptor_limit()).surroundings, None)
    timers, pending_count = role.derived.timers, 0
    try:
        if timers is not None:
            timers.find_all()
            timers.handed_over_max = timers.pending_count
            pending_count = timers.pending_count
            role.derived.hand_over()
        far_count = role.far.held.pending_count
    finally:
        await role.stop()
    if far_count:
        raise StoreError(
            f"{far_count} messages wait in the far tier of {root}, which RocketMQ does not read",
            remedy="start orbitmq on it, run `orbitmq timer far restore`, and stop it",
        )
    return HandedOver(
        is_exact=not is_fenced(files, root), was_exact=was_exact, pending_count=pending_count, far_count=far_count
    )
