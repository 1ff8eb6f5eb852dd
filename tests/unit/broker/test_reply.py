"""Replies reach the client that asked, and are stored beside that; every way in which they do not."""

from __future__ import annotations

import pytest

from orbitmq.access.gate import CALLER
from orbitmq.access.users import User
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.remoting.commands import SEND_V1_FIELDS, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request, response

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def fields(client_id="asker", **more):
    properties = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply", "TTL": "3000", "UNIQ_KEY": "u" * 32, **more}
    if client_id:
        properties["REPLY_TO_CLIENT"] = client_id
    return {
        "producerGroup": "repliers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 123,
        "flag": 5,
        "properties": encode_properties(properties).decode(),
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
    }


def letters(long):
    return {SEND_V1_FIELDS[name]: value for name, value in long.items()}


@pytest.fixture
def asker(rig):
    peer = rig.peer()
    rig.heartbeat(peer, "asker", producer="askers")
    return peer


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_handed_to_the_one_who_asked_and_answered_when_that_one_has_it(rig, asker, code):
    sent = fields() if code == RequestCode.SEND_REPLY_MESSAGE else letters(fields())
    replier = rig.peer()
    assert rig.try_call(code, sent, b"42", peer=replier) is None
    ((push, timeout_ms, confirm),) = asker.questions
    assert (push.code, timeout_ms) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 10_000)
    assert bytes(push.body) == b"42"
    properties = decode_properties(push.fields.pop("properties"))
    assert properties.pop("PUSH_REPLY_TIME") == str(rig.clock.now_ms())
    assert (properties.pop("MSG_REGION"), properties.pop("TRACE_ON")) == ("DefaultRegion", "true")
    assert properties == decode_properties(fields()["properties"])
    assert push.fields == {
        "producerGroup": "repliers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "123",
        "flag": "5",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": f"10.0.0.9:{replier.address[1]}",
        "storeHost": "10.0.0.1:10911",
        "storeTimestamp": str(rig.clock.now_ms()),
    }
    confirm(response(push, ResponseCode.SUCCESS))
    (answer,) = replier.take()
    (record,) = rig.records(REPLY_TOPIC)
    assert record.body == b"42"
    assert (answer.code, answer.text("queueId"), answer.text("queueOffset")) == (ResponseCode.SUCCESS, "0", "0")
    assert (answer.text("TRACE_ON"), answer.text("MSG_REGION")) == ("true", "DefaultRegion")
    assert (
        answer.text("msgId") == rig.broker.core.facilities.store_host.hex().upper() + f"{record.physical_offset:016X}"
    )


def test_replies_need_not_be_stored(make_rig):
    rig = make_rig(store_reply_message_enable=False)
    asker = rig.peer()
    rig.heartbeat(asker, "asker", producer="askers")
    replier = rig.peer()
    rig.try_call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42", peer=replier)
    ((push, _, confirm),) = asker.questions
    confirm(response(push, ResponseCode.SUCCESS))
    (answer,) = replier.take()
    assert (answer.code, answer.text("msgId")) == (ResponseCode.SUCCESS, "0")
    assert rig.records(REPLY_TOPIC) == []


@pytest.mark.parametrize(
    ("client_id", "confirmation", "says"),
    [
        ("", None, "has no property REPLY_TO_CLIENT"),
        ("stranger", None, "is not connected to this broker"),
        ("asker", "none", "did not confirm the reply in time"),
        ("asker", "refusal", "refused the reply: not mine"),
    ],
)
def test_a_reply_that_does_not_arrive_is_an_error_and_stored(rig, asker, client_id, confirmation, says):
    replier = rig.peer()
    answer = rig.try_call(RequestCode.SEND_REPLY_MESSAGE, fields(client_id), b"42", peer=replier)
    if confirmation is not None:
        assert answer is None
        ((push, _, confirm),) = asker.questions
        confirm(None if confirmation == "none" else response(push, ResponseCode.SYSTEM_ERROR, "not mine"))
        (answer,) = replier.take()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert says in answer.remark
    assert len(answer.text("msgId")) == 32
    assert len(rig.records(REPLY_TOPIC)) == 1


def test_a_requester_that_has_gone_is_not_asked(rig, asker):
    rig.broker.peer_closed(asker)
    answer = rig.call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42")
    assert "is not connected" in answer.remark
    assert asker.questions == []


def test_the_connection_of_the_last_heartbeat_is_asked(rig, asker):
    newer = rig.peer()
    rig.heartbeat(newer, "asker", producer="askers")
    rig.broker.peer_closed(asker)  # the old connection ends later
    rig.try_call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42")
    assert len(newer.questions) == 1


def test_a_client_that_leaves_its_last_producer_group_gets_no_replies(rig, asker):
    rig.heartbeat(asker, "asker", producer="others")
    rig.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "asker", "producerGroup": "askers"}, peer=asker)
    rig.try_call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42")
    assert len(asker.questions) == 1
    rig.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "asker", "producerGroup": "others"}, peer=asker)
    assert rig.call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42").code == ResponseCode.SYSTEM_ERROR


def test_a_refused_reply_is_neither_stored_nor_handed_on(rig, asker):
    answer = rig.call(RequestCode.SEND_REPLY_MESSAGE, fields() | {"queueId": 9}, b"42")
    assert (answer.code, answer.text("TRACE_ON")) == (ResponseCode.INVALID_PARAMETER, "true")
    assert asker.questions == []
    assert rig.records(REPLY_TOPIC) == []


def test_a_oneway_reply_is_handed_on_and_not_answered(rig, asker):
    replier = rig.peer()
    assert rig.try_call(RequestCode.SEND_REPLY_MESSAGE, fields(), b"42", peer=replier, oneway=True) is None
    ((push, _, confirm),) = asker.questions
    confirm(response(push, ResponseCode.SUCCESS))
    assert replier.take() == []


def test_under_overload_a_reply_is_refused_like_any_send(rig, asker):
    command = request(RequestCode.SEND_REPLY_MESSAGE, {name: str(value) for name, value in fields().items()}, b"42")
    assert rig.broker.handle_excess(command, rig.peer()).code == ResponseCode.SYSTEM_BUSY
    assert asker.questions == []
    assert rig.records(REPLY_TOPIC) == []


def test_replies_to_a_client_go_to_no_other_users_connection_with_its_id(rig, asker):
    """What another user's heartbeat says of a client id counts only when the connection that had it first is gone."""
    other = rig.peer()
    for peer, name in ((asker, "owner"), (other, "thief")):
        peer.attachments[CALLER] = User(name, "a password")
        rig.heartbeat(peer, "asker", producer="askers")
    assert rig.broker.clients.requester("asker") is asker
    again = rig.peer()
    again.attachments[CALLER] = User("owner", "a password that was changed meanwhile")
    rig.heartbeat(again, "asker", producer="askers")
    assert rig.broker.clients.requester("asker") is again
    rig.broker.peer_closed(again)
    rig.heartbeat(other, "asker", producer="askers")
    assert rig.broker.clients.requester("asker") is other
