"""What `orbitmq doctor` looks at of an engine and of a replicated group: endpoints, the password's file, members and their clocks.

Rules of this file
1. As in `doctor_checks`: one line for each thing, and nothing is changed. Each endpoint is asked alone.
2. A member that gives no answer is a warning: it may take this one for nobody that it knows.
"""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.cli.doctor.doctor_checks import Level, Result
from orbitmq.clock import SystemClock
from orbitmq.limits.cli import DOCTOR_ANSWER_TIMEOUT_S
from orbitmq.units import NS_PER_MS

if TYPE_CHECKING:
    from orbitmq.replication.engine_address import EngineAddress

REMEDY: Final = "see that etcd runs there, has a leader, and is reached from here"


def engine_checks(address: EngineAddress, group: str, password_file: str) -> list[Result]:
    """Of the engine, and with `group` of what it holds of that one."""
    found = password(password_file) if password_file or address.user else []
    found += asyncio.run(endpoints(address, password_file))
    if group:
        found += asyncio.run(members(address, group, password_file))
    return found


def password(file: str) -> list[Result]:
    """The file of the password is there, and nobody else reads it."""
    check = "engine password"
    if not file:
        return [
            Result(
                Level.FAIL, check, "the engine asks who this is, and no file is named", "give --engine-password-file"
            )
        ]
    try:
        found = Path(file).stat()
    except OSError as error:
        return [Result(Level.FAIL, check, f"{file}: {error.strerror}", "replicationEnginePasswordFile names it")]
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        return [Result(Level.WARN, check, f"{file} has mode {mode:03o}: others can read it", f"chmod 600 {file}")]
    return [Result(Level.OK, check, f"{file} has mode {mode:03o}")]


async def endpoints(address: EngineAddress, password_file: str) -> list[Result]:
    """Each of them: whether it answers as brokers would ask it, its release, and what it says is wrong with it."""
    from orbitmq.cli.replicas.replica_engine import NO_GROUP, opened
    from orbitmq.server.replication.engines.etcd_answers import Belief
    from orbitmq.server.replication.engines.group_engine import EngineError

    results, belief, clock = list[Result](), Belief(), SystemClock()
    for endpoint in address.endpoints:
        asked = opened(msgspec.structs.replace(address, endpoints=(endpoint,)), password_file, belief)
        check, began_ns = f"engine {endpoint}", clock.monotonic_ns()
        try:
            await asked.read(NO_GROUP)
            took_ms = (clock.monotonic_ns() - began_ns) / NS_PER_MS
            status = await asked.status()
        except EngineError as error:
            results.append(Result(Level.FAIL, check, error.why.removeprefix(f"{endpoint}: "), error.remedy or REMEDY))
        else:
            size = f"{int(status.db_size) // 1_024} KiB"
            found = f"etcd {status.version}, revision {status.header.revision}, {size}, {took_ms:.1f} ms"
            if status.errors:
                remedy = "see `etcdctl alarm list` and `etcdctl endpoint status`"
                results.append(Result(Level.WARN, check, f"{found}: {'; '.join(status.errors)}", remedy))
            else:
                results.append(Result(Level.OK, check, found))
        finally:
            await asked.aclose()
    if any(one.level is not Level.FAIL for one in results):  # members go on with the others
        results = [one._replace(level=Level.WARN) if one.level is Level.FAIL else one for one in results]
    return results


async def members(address: EngineAddress, group: str, password_file: str) -> list[Result]:
    """Who leads, and of each member whether it is present, and whether its clock is right."""
    from orbitmq.cli.replicas.replica_engine import members_of
    from orbitmq.server.replication.engines.group_engine import EngineError

    try:
        rows = await members_of(address, group, password_file)
    except EngineError as error:
        return [Result(Level.FAIL, f"group {group}", error.why, error.remedy or REMEDY)]
    if not rows:
        return [
            Result(
                Level.WARN, f"group {group}", "the engine knows nothing of it", "start a member, or look at the prefix"
            )
        ]
    leader = next((row["member"] for row in rows if row["role"] == "leader"), "")
    in_sync = [row["member"] for row in rows if row["role"] in ("leader", "in sync")]
    found = f"epoch {rows[0]['epoch']}, {leader or 'nobody'} leads, in sync: {', '.join(in_sync)}"
    results = [
        Result(Level.OK if leader else Level.WARN, f"group {group}", found, "" if leader else "start its members")
    ]
    for row in rows:
        check = f"member {row['member']}"
        if not row["address"]:
            results.append(Result(Level.WARN, check, "not present", "start it; or take it out: orbitmq replica remove"))
        else:
            results.append(_clock(check, row, await facts_of(row["address"])))
    return results


def _clock(check: str, row: dict[str, Any], facts: dict[str, str]) -> Result:
    where = f"{row['role']}, at {row['address']}"
    if not facts:
        return Result(Level.WARN, check, f"{where}: it gives no answer", "look whether it runs, and whom it answers")
    off_ms, trouble = int(facts.get("orbitmqReplicaClockOff", "0")), facts.get("orbitmqReplicaTrouble", "")
    if off_ms:
        found = f"{where}: its clock is {off_ms} ms off from the leader's"
        return Result(Level.WARN, check, found, "look at the time service of both machines")
    if trouble:
        return Result(Level.WARN, check, f"{where}: {trouble}", "see `orbitmq replica status`")
    return Result(Level.OK, check, f"{where}, its clock is right")


async def facts_of(address: str) -> dict[str, str]:
    """Runtime information of a broker, plainly or over TLS; empty where it gives none."""
    from orbitmq.cli.doctor.doctor_checks import trusting_anybody
    from orbitmq.errors import OrbitError
    from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
    from orbitmq.protocol.remoting.frame import request
    from orbitmq.server.connections.outbound import PLAIN, Calling
    from orbitmq.server.replication.asking import call_once

    for calling in (PLAIN, Calling(tls=trusting_anybody)):
        try:
            asked = request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await call_once(address, asked, int(DOCTOR_ANSWER_TIMEOUT_S * 1_000), SystemClock(), calling)
            if answer.code == ResponseCode.SUCCESS:
                table: dict[str, str] = json.loads(bytes(answer.body))["table"]
                return table
        except (OrbitError, OSError, ValueError, KeyError):
            continue
    return {}
