"""What a part in replication has of its broker, and how the broker ceases to append and begins again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.server.process.surroundings import Surroundings
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.store import MessageStore
from orbitmq.store.writability import COPY
from orbitmq.timing.appending import NOT_ATTACHED, Appenders

if TYPE_CHECKING:
    from orbitmq.broker.derived_state import DerivedState
    from orbitmq.broker.table_records.table_records import TableRecords
    from orbitmq.server.roles.registration import Registrar

logger = logging.getLogger("orbitmq.replication")


class BrokerParts(NamedTuple):
    """Of one broker whose store is open."""

    process: Surroundings
    store: MessageStore
    appenders: Appenders
    derived: DerivedState
    registrar: Registrar
    file: ConfigFile
    """Keeps what is known of copies, or of a group."""

    settle: Callable[[], object]
    """This broker is about to lead: what the log says of a broker of RocketMQ that led it is to be found out. Raises OSError."""

    @property
    def tables(self) -> TableRecords:
        assert self.derived.tables is not None, "a broker has tables"
        return self.derived.tables

    def stand_still(self) -> None:
        """Append nothing any more. What was appended is written on return. Raises OSError."""
        self.tables.end()
        self.appenders.detach()
        self.store.only_copy(NOT_ATTACHED)
        self.store.commit()

    def go_on(self) -> None:
        """Append again."""
        self.store.allow(COPY)
        self.attach()

    def attach(self) -> None:
        """The parts that append may do so."""
        try:
            self.appenders.attach()
        except OSError as error:  # it is tried again
            logger.error("what waits for its time is not delivered yet: %s", error)
