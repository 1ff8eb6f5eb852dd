"""Brokers that somebody expects: which of them are missing, and why.

A name server forgets a broker that has gone. A list of brokers, a sum over them and a file made from them are smaller then, and nothing
says so. Whoever names the brokers of a cluster, in its context or with `--expect`, is told.

Rules of this file
1. A broker is there when a master of its name is registered and answers.
2. Of brokers that have gone a cluster remembers only those that keep recurring messages. Whether another name has gone or never was is
   not known; both are said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits.cli import CLI_EXPECTED_BROKERS_MAX
from orbitmq.nearest import nearest

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker


class Absence(StrEnum):
    """What is the matter with a broker that is missing."""

    AWAY = "away"
    """It was in this cluster, and is not registered now."""
    UNKNOWN = "unknown"
    """It is not registered, and nothing shows that it ever was."""
    WITHOUT_MASTER = "without master"
    """Only slaves are registered under its name."""
    SILENT = "silent"
    """Its master is registered and does not answer."""


class MissingBroker(NamedTuple):
    """A broker that should be there. text: what is the matter and what to do, for people."""

    broker: str
    absence: Absence
    text: str


def expected_names(text: str) -> tuple[str, ...]:
    """Names with `;` between, each once, in their order. `ConfigurationError` for what can be no name, and for too many."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(";") if name.strip()))
    for name in names:
        if not name.isprintable() or any(char.isspace() or char in ",:" for char in name):
            raise ConfigurationError(
                f"{name[:80]!r} is no name of a broker",
                remedy="give names as `orbitmq broker list` shows them, ; between",
            )
    if len(names) > CLI_EXPECTED_BROKERS_MAX:
        raise ConfigurationError(
            f"{len(names)} brokers are expected, at most CLI_EXPECTED_BROKERS_MAX = {CLI_EXPECTED_BROKERS_MAX} can be"
        )
    return names


def missing_of(
    names: Sequence[str], brokers: Sequence[Broker], silent: Mapping[str, str], remembered: Iterable[str]
) -> list[MissingBroker]:
    """Those of `names` that are missing, in their order.

    brokers: what is registered. silent: by name, what became of asking its master. remembered: names of brokers known to have been there.
    """
    registered = {broker.name for broker in brokers}
    masters = {broker.name: broker.address for broker in brokers if broker.is_master}
    known = set(remembered)
    missing = []
    for name in names:
        if name in silent:
            text = f"it is registered at {masters[name]} and does not answer: {silent[name]}"
            missing.append(MissingBroker(name, Absence.SILENT, text))
        elif name in registered and name not in masters:
            text = "only slaves of it are registered; start its master, or make one of them the master: orbitmq replica promote"
            missing.append(MissingBroker(name, Absence.WITHOUT_MASTER, text))
        elif name in known and name not in registered:
            text = "it is not registered, and keeps recurring messages, so it has been there; start it"
            missing.append(MissingBroker(name, Absence.AWAY, text))
        elif name not in registered:
            missing.append(MissingBroker(name, Absence.UNKNOWN, _never_seen(name, sorted(registered), names)))
    return missing


async def missing_brokers(client: Client, names: Sequence[str]) -> list[MissingBroker]:
    """Those of `names` that are missing. Asks name servers, and the masters of these names at the same time; nobody without names."""
    import asyncio

    if not names:
        return []
    brokers = await client.admin.brokers()
    masters = {broker.name: broker.address for broker in brokers if broker.is_master and broker.name in names}
    answers = await asyncio.gather(*(_silence(client, address) for address in masters.values()))
    silent = {name: text for name, text in zip(masters, answers, strict=True) if text is not None}
    away = not {broker.name for broker in brokers}.issuperset(names)
    return missing_of(names, brokers, silent, await _remembered(client) if away else ())


async def _silence(client: Client, address: str) -> str | None:
    """Why a broker does not answer; None where it does, with a refusal too."""
    from orbitmq.errors import ClientError, RemoteError

    try:
        await client.admin.broker_runtime(address)
    except RemoteError:
        return None
    except ClientError as error:
        return str(error)
    return None


async def _remembered(client: Client) -> Sequence[str]:
    from orbitmq.errors import ClientError

    try:
        return await client.recurring.brokers_away()
    except ClientError:  # no broker at all, or name servers without such a table
        return ()


def _never_seen(name: str, registered: Sequence[str], names: Sequence[str]) -> str:
    near = nearest(name, set(registered).difference(names))  # one that is expected itself is not meant by another name
    meant = f", is {near} meant?" if near else ""
    return (
        "no broker of this name is registered, and nothing shows that there ever was one "
        f"(registered: {', '.join(registered) or 'none'}{meant}); start it, or correct what is expected"
    )
