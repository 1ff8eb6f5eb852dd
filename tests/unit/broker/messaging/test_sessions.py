"""Sessions: who they belong to, and how many there may be."""

from __future__ import annotations

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_calls import ListCall

from orbitmq.broker.messaging import sessions as module
from orbitmq.broker.messaging.sessions import Sessions
from orbitmq.limits.broker import CLIENT_ID_CHARS_MAX
from orbitmq.limits.grpc import SETTINGS_PART_BYTES
from orbitmq.protocol.grpc.messages import Code, Publishing, Resource, Settings
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError


def call_of(client_id: str, user: str = "") -> ListCall:
    call = ListCall(Rpc.TELEMETRY, 0, client_id=client_id)
    call.user = user
    return call


def test_users_with_the_same_client_id_have_sessions_of_their_own(front_rig: FrontRig) -> None:
    sessions = Sessions(front_rig.broker.core)
    hers, his = call_of("one", "her"), call_of("one", "him")
    assert sessions.begin(hers) is not sessions.begin(his)
    assert sessions.of(hers) is sessions.begin(hers)
    sessions.begin(his).close("test")
    assert sessions.of(his) is None
    assert sessions.of(hers) is not None


def test_one_client_more_than_may_be_is_refused_and_the_others_stay(front_rig: FrontRig) -> None:
    sessions = Sessions(front_rig.broker.core, sessions_max=2)
    sessions.begin(call_of("one"))
    sessions.begin(call_of("two"))
    with pytest.raises(RpcError) as caught:
        sessions.begin(call_of("three"))
    assert caught.value.code == Code.TOO_MANY_REQUESTS
    assert sessions.begin(call_of("one")).is_open
    sessions.begin(call_of("one")).close("test")
    assert sessions.begin(call_of("three")).is_open


def test_a_client_id_that_is_too_long_is_refused(front_rig: FrontRig) -> None:
    sessions = Sessions(front_rig.broker.core)
    sessions.begin(call_of("x" * CLIENT_ID_CHARS_MAX))
    with pytest.raises(RpcError) as caught:
        sessions.begin(call_of("x" * (CLIENT_ID_CHARS_MAX + 1)))
    assert caught.value.code == Code.BAD_REQUEST


def test_settings_of_all_clients_together_are_bounded(front_rig: FrontRig, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(publishing=Publishing(topics=[Resource(name="T" * 100)]))
    monkeypatch.setattr(module, "SESSIONS_SETTINGS_BYTES_MAX", 2 * (settings.ByteSize() + SETTINGS_PART_BYTES))
    sessions = Sessions(front_rig.broker.core)
    one, two, three = (sessions.begin(call_of(name)) for name in ("one", "two", "three"))
    for session in (one, two, one):
        sessions.keep_settings(session, settings)
    with pytest.raises(RpcError) as caught:
        sessions.keep_settings(three, settings)
    assert caught.value.code == Code.TOO_MANY_REQUESTS
    sessions.seen(two, call_of("two"))
    two.close("test")
    sessions.keep_settings(three, settings)
