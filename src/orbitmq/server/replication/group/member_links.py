"""The links of a member to all others: a connection of ours to each that we have something to say to, and theirs to us.

Rules of this file
1. A follower is sent the log from where a record of ours begins, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.log_stream import LogStream
from orbitmq.replication.replica_steps import FollowSession
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.group.link_source import LinkSource
from orbitmq.server.replication.group.member_port import MemberPort
from orbitmq.server.replication.group.member_sender import MemberSender

logger = logging.getLogger("orbitmq.replication")


class MemberLinks:
    """As `driver_ports.Links`."""

    def __init__(
        self, process: Surroundings, source: LinkSource, port: MemberPort, follows: Callable[[str], None]
    ) -> None:
        """`follows(name)`: that member begins to follow."""
        self._follows = follows
        self.senders: dict[str, MemberSender] = {}
        self._link_settings = process.settings.replication.link()
        self._source = source
        self._port = port

    def _sender(self, name: str) -> MemberSender:
        sender = self.senders.get(name)
        if sender is None:
            sender = self.senders[name] = MemberSender(name, self._source)
        return sender

    def send(self, to: str, message: steps.Message) -> None:
        self._sender(to).send(message)

    def stream(self, to: str, session: FollowSession, position: int) -> None:
        try:
            is_record = self._source.begins_record(position)
        except OSError as error:
            logger.error("member %s cannot be sent the log from position %d on: %s", to, position, error)
            return
        if is_record:
            logger.info("member %s follows from position %d on", to, position)
            self._sender(to).begin_stream(LogStream(self._link_settings, session, position))
            self._follows(to)
        else:
            self._port.let_go(to, f"it has the log up to {position}, where no record of ours begins")

    def end_stream(self, to: str) -> None:
        if (sender := self.senders.get(to)) is not None:
            sender.end_stream()

    def log_grew(self) -> None:
        now_ns = self._source.clock.monotonic_ns()
        for sender in self.senders.values():
            sender.look(now_ns)

    def close(self) -> None:
        """Nobody is spoken with any more; who connects is refused."""
        self._port.close()
        for sender in self.senders.values():
            sender.close()
