"""Where the other brokers of a group are: what a command said, or the settings, else what a name server does.

Rules of this file
1. What a command said of the master counts until a name server names another one, in this process alone.
2. The settings know nothing of an exchange of roles: where nobody takes this slave at the address in them, it goes to the one that a name
   server names, and after a failure there to that in the settings. What took it is kept. While a name server names the broker that took it
   at the address in the settings it goes to no other: that network may be there for copies alone.
3. A master has a port for slaves and a main port. Where nobody says it the one is the other + 1, unless that was set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.replication.kept_state import Demoted

if TYPE_CHECKING:
    from orbitmq.server.roles.registration import Registrar

logger = logging.getLogger("orbitmq.replication")

SLAVE_PORT_STEP: Final = 1
"""Of the port for slaves, from the main port, unless it is set; RocketMQ's."""


class MasterPlace(NamedTuple):
    main_port: str
    port_for_slaves: str


class GroupPlaces:
    """Of the group of one broker. Addresses are `host:port`."""

    def __init__(self, registrar: Registrar, given: tuple[str, ...]) -> None:
        """`given`: ports for slaves of a master, as the settings name them."""
        self._registrar = registrar
        self._given = given
        self._said: MasterPlace | None = None
        """The master that this broker was told to follow; None where nobody told it."""
        self._asked = ""
        """Main port of the master that was asked last, as a name server said it."""
        self._at_given = ""
        """The same of the master that took this slave at the address in the settings; empty where none did."""
        self._leaves_given = False
        """The next attempt goes to the master that a name server names, not to the one of the settings."""
        self._elsewhere = ""
        """Where that was last, as the log knows."""

    @property
    def own(self) -> str:
        """Main port of this broker."""
        return self._registrar.identity.address

    @property
    def named(self) -> str:
        """The port for slaves of the master that a command or the settings name; empty where a name server is asked."""
        if self._said is not None:
            return self._said.port_for_slaves
        return self._given[0] if self._given else ""

    def master_port(self) -> str:
        """The port for slaves of the master that is to be followed; empty while nobody says where that is. A name server is asked anew."""
        self._registrar.register_all()  # for its main port as well
        known = self._registrar.master_ha_address
        if self._given and self._said is None:
            return self._beside_given(known)
        if self._said is not None and (not known or self._registrar.master_address == self.own):
            return self._said.port_for_slaves
        return known

    def _beside_given(self, known: str) -> str:
        given = self._given[0]
        if (
            not self._leaves_given
            or known in ("", given)
            or self._registrar.master_address in (self.own, self._at_given)
        ):
            return given
        if known != self._elsewhere:
            self._elsewhere = known
            logger.warning(
                "no master takes this slave at %s, its haMasterAddress: it asks at %s, which a name server names; let the settings say so",
                given,
                known,
            )
        return known

    def ended(self, port_for_slaves: str, lasted: bool, was_taken: bool) -> None:
        """The master there was not reached, or its connection has ended, which lasted or not, and on which it sent something or not."""
        is_given = self._given[:1] == (port_for_slaves,)
        self._leaves_given = is_given and not lasted
        if is_given and was_taken:
            self._at_given = self._asked

    def main_port(self, port_for_slaves: str) -> str:
        """Where the master with that port serves clients."""
        named = self._asked = self._registrar.master_address
        if self._said is not None and port_for_slaves == self._said.port_for_slaves:
            is_named = bool(named) and named != self.own and self._registrar.master_ha_address == port_for_slaves
            return named if is_named else self._said.main_port
        host, _, port = port_for_slaves.rpartition(":")
        return named or f"{host}:{int(port) - SLAVE_PORT_STEP}"

    def follow(self, told: Demoted | None) -> None:
        """A command made this broker a slave, and perhaps said of whom; or it leads."""
        self._said = None if told is None or not told.port else MasterPlace(told.master, told.port)

    async def members(self) -> Mapping[int, str]:
        """Main ports of the brokers of this group by their ids, as a name server says; empty where none does."""
        members: asyncio.Future[Mapping[int, str] | None] = asyncio.get_running_loop().create_future()
        self._registrar.ask_group(lambda found: None if members.done() else members.set_result(found))
        return await members or {}
