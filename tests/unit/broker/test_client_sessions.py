"""Clients of another front end are members of groups like any: sessions that may come over many connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.broker.conftest import MakeRig, Rig

from orbitmq.broker.clients import HeartbeatSender
from orbitmq.protocol.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language


class StreamSession:
    """A client of another front end, which answers what it is asked with its name."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.address = ("10.0.0.7", 1)
        self.told: list[int] = []
        self.closed = ""

    def send(self, command: Command) -> None:
        self.told.append(command.code)

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        self.told.append(command.code)
        callback(response(command, ResponseCode.SUCCESS, body=self.client_id.encode()))

    def close(self, reason: str) -> None:
        self.closed = reason


def seen(rig: Rig, session: Any) -> None:
    """A heartbeat of the session, over whichever connection."""
    clock = rig.clock
    who = HeartbeatSender(session, session.client_id, Language.GO, OUR_VERSION, clock.now_ms(), clock.monotonic_ns())
    wanted = ConsumerData(
        group_name="g",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
    )
    rig.broker.clients.consumer_seen(wanted, who)
    rig.broker.end_turn()


def test_a_session_is_told_of_members_that_speak_remoting_and_they_of_it(rig: Rig) -> None:
    session, peer = StreamSession("stream"), rig.peer()
    seen(rig, session)
    session.told.clear()
    rig.heartbeat(peer, "connection", "g", ["T"])
    assert session.told == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    peer.take()
    rig.broker.clients.session_ended(session)
    assert [command.code for command in peer.take()] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


def test_it_outlives_connections_and_stands_once_however_often_it_is_seen(rig: Rig) -> None:
    session = StreamSession("stream")
    for port in range(3):
        session.address = ("10.0.0.7", port)
        seen(rig, session)
    rig.broker.peer_closed(rig.peer())
    group = rig.broker.clients.consumer("g")
    assert group is not None
    assert (group.client_ids(), len(group.members)) == (["stream"], 1)


def test_tools_ask_it_what_it_is_doing(rig: Rig) -> None:
    seen(rig, StreamSession("stream"))
    answer = rig.call(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "stream"})
    assert (answer.code, bytes(answer.body)) == (ResponseCode.SUCCESS, b"stream")


def test_silence_ends_it(make_rig: MakeRig) -> None:
    rig = make_rig(channel_expired_timeout_ms=10_000)
    session = StreamSession("stream")
    seen(rig, session)
    rig.advance(9_000)
    assert not session.closed
    rig.advance(2_000)
    assert session.closed == "no heartbeat for 10000 ms"
