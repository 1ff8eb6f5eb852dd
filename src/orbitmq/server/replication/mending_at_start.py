"""A start that met damage in the log fetches it from another copy, and is tried again.

Rules of this file
1. Other copies are looked for where the settings, a name server and the last life of this broker say. That takes a bounded time.
2. Where none helps the start is refused with what was found, as without copies.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from orbitmq.errors import LogDamagedError, OrbitError
from orbitmq.limits.replication import MASTER_LIVES_MS, MEND_AT_START_PAUSE_MS, MEND_AT_START_TRIES
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.asking import call_once, log_range
from orbitmq.server.replication.group_places import SLAVE_PORT_STEP
from orbitmq.server.replication.stopped_log import DamagedPlace, StoppedLog
from orbitmq.server.roles.registration import group_in

logger = logging.getLogger("orbitmq.replication")


async def mend_before_start(process: Surroundings, own_name_server: str | None, met: LogDamagedError) -> None:
    """Fetch what a start met. Raises LogDamagedError where that is not to be had; OrbitError, OSError where the disk fails."""
    store = process.settings.store
    stopped = StoppedLog(
        process.files, process.settings.data, store.store_path_commit_log, store.mapped_file_size_commit_log
    )
    try:
        if not stopped.has_copies:
            raise met
        logger.error("%s; other copies are asked for it", met.args[0])
        copies: list[str] = []
        for tried in range(MEND_AT_START_TRIES):
            copies = await _other_copies(process, own_name_server, stopped)
            asks = {one: partial(log_range, one, clock=process.clock, calling=process.calling) for one in copies}
            group = process.settings.broker.broker_name
            if stopped.lost:
                found = await stopped.bring(asks, group)
            else:
                found = await stopped.mend(met.position, met.until, asks, group, why=met.args[0])
            left = [place for place in found if not place.came_from]
            if not left:
                return
            if stopped.has_answered or not copies or tried + 1 == MEND_AT_START_TRIES:
                raise _refusal(met, left, copies, stopped) from met
            await asyncio.sleep(MEND_AT_START_PAUSE_MS / 1_000)
    finally:
        stopped.close()


def _refusal(met: LogDamagedError, left: list[DamagedPlace], copies: list[str], stopped: StoppedLog) -> LogDamagedError:
    return LogDamagedError(
        f"{met.args[0]}, and no other copy gave it: {left[0].refusals}",
        left[0].position,
        met.until,
        remedy=f"start a broker that has a copy of this log, then this one; or have it mended from that broker: "
        f"{stopped.command(copies[0] if copies else 'HOST:PORT')}",
    )


async def _other_copies(process: Surroundings, own_name_server: str | None, stopped: StoppedLog) -> list[str]:
    """Main ports of brokers that may have a copy of this log, first those that had it when this one ran last."""
    found: list[str] = [*reversed(stopped.copies)]
    name = process.settings.broker.broker_name
    for server in dict.fromkeys([*process.settings.broker.namesrv_addr, *filter(None, [own_name_server])]):
        try:
            answer = await call_once(
                server, request(RequestCode.GET_BROKER_CLUSTER_INFO), MASTER_LIVES_MS, process.clock, process.calling
            )
            found += group_in(answer, name, server).values()
        except (OrbitError, ValueError) as error:
            logger.info("name server %s did not say which brokers are in this group: %s", server, error)
    for address in process.settings.replication.master_addresses:
        host, _, port = address.rpartition(":")
        found.append(f"{host}:{int(port) - SLAVE_PORT_STEP}")
    return list(dict.fromkeys(found))
