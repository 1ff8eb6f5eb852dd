"""Who sends to a broker: what its runtime information says of it, and what it keeps."""

from __future__ import annotations

import json

from orbitmq.broker.counting.senders import Senders
from orbitmq.limits.broker import SENDERS_MAX, SENDERS_NAMED_MAX
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.bodies import KVTable
from orbitmq.protocol.remoting.commands import RequestCode

S = 1_000_000_000


def test_nobody_has_sent_since_the_start() -> None:
    assert Senders().facts(5 * S) == {
        "orbitmqSendersOfLastMinute": 0, "orbitmqLastSenders": "[]", "orbitmqLastSendAgoMillis": -1,
    }  # fmt: skip


def test_who_sent_last_is_named_first() -> None:
    senders = Senders()
    for port, at_s in ((1, 100), (2, 10), (3, 99)):
        senders.last_ns[pack_host("10.0.0.7", port)] = at_s * S
    facts = senders.facts(101 * S)
    assert (facts["orbitmqSendersOfLastMinute"], facts["orbitmqLastSendAgoMillis"]) == (2, 1_000)
    assert json.loads(str(facts["orbitmqLastSenders"])) == [
        {"address": "10.0.0.7:1", "agoMillis": 1_000},
        {"address": "10.0.0.7:3", "agoMillis": 2_000},
        {"address": "10.0.0.7:2", "agoMillis": 91_000},
    ]


def test_of_too_many_those_are_forgotten_that_have_not_sent_for_longest() -> None:
    senders = Senders()
    last_ns = senders.last_ns
    for number in range(SENDERS_MAX + 1):
        last_ns[number.to_bytes(8, "big")] = number
    senders.trim()
    assert senders.last_ns is last_ns, "whoever writes into it goes on"
    assert list(last_ns.values()) == list(range(SENDERS_MAX, SENDERS_MAX // 2, -1))
    assert len(json.loads(str(senders.facts(S)["orbitmqLastSenders"]))) == SENDERS_NAMED_MAX
    senders.trim()
    assert len(last_ns) == SENDERS_MAX // 2


def test_a_send_counts_whether_it_is_taken_or_refused(rig) -> None:
    def told() -> dict[str, str]:
        return KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    assert told()["orbitmqLastSendAgoMillis"] == "-1"
    peer = rig.peer()
    rig.sent_ok("T", b"x", peer=peer)
    rig.clock.advance(3_000)
    assert told()["orbitmqLastSendAgoMillis"] == "3000"
    assert rig.send("SCHEDULE_TOPIC_XXXX", b"x", peer=peer).code != 0
    rig.clock.advance(2_000)
    facts = told()
    assert (facts["orbitmqLastSendAgoMillis"], facts["orbitmqSendersOfLastMinute"]) == ("2000", "1")
    (one,) = json.loads(facts["orbitmqLastSenders"])
    assert one == {"address": f"10.0.0.9:{peer.address[1]}", "agoMillis": 2_000}


def test_a_batch_counts_as_well(rig) -> None:
    body = encode_batch([BatchItem(0, b"x", encode_properties({"UNIQ_KEY": "A" * 32}))])
    rig.sent_ok("T", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    facts = KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert facts["orbitmqLastSendAgoMillis"] == "0"
