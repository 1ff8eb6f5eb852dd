"""`orbitmq replica engine`: whether an engine answers as brokers would ask it, and what it holds of a group.

Rules of this file
1. Each endpoint is asked alone, so that one that does not answer is seen although brokers go on with another one.
2. What brokers would not believe is not shown as an answer. Nothing is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import show_rows
from orbitmq.clock import SystemClock
from orbitmq.units import NS_PER_MS

if TYPE_CHECKING:
    from orbitmq.replication.engine_address import EngineAddress
    from orbitmq.server.replication.engines.etcd import EtcdEngine
    from orbitmq.server.replication.engines.etcd_answers import Belief

ENDPOINT_COLUMNS: Final = ("endpoint", "answers", "ms", "note")
MEMBER_COLUMNS: Final = ("group", "epoch", "member", "role", "address", "version", "note")
NO_GROUP: Final = "-"
"""Asked for where no group is named: an answer counts, whatever it is."""

AddressArgument = Annotated[
    str, typer.Argument(metavar="ENGINE", help="As replicationEngine of a broker: etcd://host:2379/prefix.")
]
GroupOption = Annotated[str, typer.Option("--group", help="Show the members of this group (brokerName) instead.")]
PasswordOption = Annotated[
    str, typer.Option("--password-file", help="As replicationEnginePasswordFile of a broker.", show_default=False)
]


def engine(address: AddressArgument, group: GroupOption = "", password_file: PasswordOption = "") -> None:
    """Ask every endpoint of an engine, as brokers of a replicated group do; or show what it holds of a group."""
    import asyncio

    parsed = parsed_engine(address)
    if group:
        rows = asyncio.run(members_of(parsed, group, password_file))
        show_rows(rows, columns=MEMBER_COLUMNS, empty=f"the engine knows nothing of {group}")
        return
    rows = asyncio.run(answers_of(parsed, password_file))
    show_rows(rows, columns=ENDPOINT_COLUMNS)
    if not all(row["answers"] for row in rows):
        raise typer.Exit(ExitCode.FAILED)


def parsed_engine(address: str) -> EngineAddress:
    """Raises ConfigurationError for what is none."""
    from orbitmq.errors import ConfigurationError
    from orbitmq.replication.engine_address import parse_engine

    try:
        parsed = parse_engine(address)
    except ValueError as error:
        raise ConfigurationError(f"{address} is no engine", remedy=str(error)) from None
    if parsed is None:
        raise ConfigurationError("no engine is named", remedy="write etcd://host:2379,host2:2379/prefix")
    return parsed


async def answers_of(address: EngineAddress, password_file: str) -> list[dict[str, Any]]:
    """One row for each endpoint."""
    from orbitmq.server.replication.engines.etcd_answers import Belief
    from orbitmq.server.replication.engines.group_engine import EngineError

    rows, belief, clock = [], Belief(), SystemClock()
    for endpoint in address.endpoints:
        asked = opened(msgspec.structs.replace(address, endpoints=(endpoint,)), password_file, belief)
        row: dict[str, Any] = {"endpoint": str(endpoint), "answers": True, "ms": None, "note": ""}
        began_ns = clock.monotonic_ns()
        try:
            await asked.read(NO_GROUP)
            row["ms"] = round((clock.monotonic_ns() - began_ns) / NS_PER_MS, 1)
        except EngineError as error:
            why = error.why.removeprefix(f"{endpoint}: ")
            row |= {"answers": False, "note": f"{why} ({error.remedy})"}
        finally:
            await asked.aclose()
        rows.append(row)
    return rows


async def members_of(address: EngineAddress, group: str, password_file: str) -> list[dict[str, Any]]:
    """One row for each member of the group, and for who is present and no member. Raises EngineError."""
    asked = opened(address, password_file)
    try:
        view = (await asked.read(group)).view
        places = {place.name: place for place in await asked.places(group)}
    finally:
        await asked.aclose()
    rows = []
    for name in sorted(places.keys() | set(() if view is None else view.members)):
        place = places.get(name)
        role = "no member"
        if view is not None and name in view.members:
            role = "leader" if name == view.leader else "in sync" if name in view.in_sync else "learner"
        rows.append(
            {
                "group": group,
                "epoch": None if view is None else view.epoch,
                "member": name,
                "role": role,
                "address": "" if place is None else place.address,
                "version": "" if place is None else place.version,
                "note": "not present" if place is None else "",
            }
        )
    return rows


def opened(address: EngineAddress, password_file: str, belief: Belief | None = None) -> EtcdEngine:
    """As brokers ask it; to be closed by the caller. With one `belief` for several endpoints another etcd is noticed."""
    from orbitmq.server.replication.engines.etcd import EtcdEngine
    from orbitmq.server.replication.engines.etcd_gateway import EtcdGateway

    gateway = EtcdGateway(address, password_file)
    gateway.belief = belief or gateway.belief
    return EtcdEngine(gateway)
