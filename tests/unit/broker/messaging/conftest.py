"""A broker with the front end of RocketMQ 5, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.conftest import SMALL_STORE, Rig
from tests.unit.broker.pop.conftest import PopRig
from tests.worlds.grpc_calls import Caller

from orbitmq.access.users import User
from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings


class WithFront(Rig):
    """With the front end; `client` makes another one of its clients."""

    def open(self) -> None:
        super().open()
        self.open_front()

    def open_front(self) -> None:
        self.front = MessagingFront(self.broker.core, self.broker.rooms, MessagingSettings())

    def client(self, client_id: str = "client", user: User | None = None) -> Caller:
        return Caller(self.front, self.clock, self.broker.end_turn, client_id, user)


class FrontRig(WithFront, PopRig):
    """A broker that serves pops."""


@pytest.fixture
def front_rig(tmp_path: Path) -> Iterator[FrontRig]:
    rig = FrontRig(tmp_path, BrokerSettings(), SMALL_STORE)
    yield rig
    rig.close()
