"""Fuzzer of the closed door. Run: `python tests/fuzz/fuzz_closed_door.py --count 200000 --seed 7`.

The inputs are signed requests of every kind, each by a user who may do just that, changed in some bytes. Whatever comes through: its
signature is that of its caller over what was read (by the plain reference), and of each kind of resource that its row names the caller
has one of the actions.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from mutations import run

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.callers import CLUSTER, CallingPeer, Grant, UsersInMemory, grants_for, led_to, needs_by_hand, sample, signed

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, Denied
from orbitmq.access.users import User, UserStatus
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.clock import ManualClock
from orbitmq.errors import FrameError
from orbitmq.limits.access import FAILURES_WITHIN_MS
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, Serialize, decode, encode
from orbitmq.protocol.remoting.requests import REQUESTS, NamedBy, RequestServer
from orbitmq.protocol.signing import signature

SERVED = {int(row.code): row for row in REQUESTS.values() if row.served_by - {RequestServer.CLIENT}}
TOKENS = [
    b'"topic":"other",',
    b'"b":"other",',
    b'"consumerGroup":"other",',
    b'"AccessKey":"u310",',
    b'"AccessKey":"off",',
    b'"Signature":"",',
    b"%RETRY%shop",
    b"null",
    *(b'"code":%d' % code for code in SERVED),
]

LISTS = {
    int(RequestCode.HEART_BEAT): b"consumerDataSet",
    int(RequestCode.BATCH_ACK_MESSAGE): b"acks",
    int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST): b"topicConfigList",
    int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST): b"groupConfigList",
}
"""Requests whose body may be of another kind by a changed code: without this list it names nothing, and nothing is done."""

USERS = UsersInMemory(User("off", "secret-of-off", status=UserStatus.DISABLED))
GRANTED: dict[str, list[Grant]] = {}
CLOCK = ManualClock(1_700_000_000_000)
GATE = UsersGate(USERS, GateRules(CLUSTER), FailedAttempts(CLOCK))
PEER = CallingPeer()


def corpus() -> list[bytes]:
    """A frame of each kind in both forms of headers, and one by a user who may not call."""
    frames = [encode(signed(sample(SERVED[310]), USERS.by_name["off"]))]
    for code, row in SERVED.items():
        user = User(f"u{code}", f"secret-of-{code}")
        USERS.by_name[user.name] = user
        GRANTED[user.name] = grants_for(needs_by_hand(row))
        USERS.grant(user, *GRANTED[user.name])
        command = signed(sample(row), user)
        frames.append(encode(command))
        if code < 1 << 15:
            command.serialize = Serialize.BINARY
            frames.append(encode(command))
    return frames


def parse(data: bytes) -> str:
    try:
        command = decode(max(len(data) - 4, 0).to_bytes(4, "big") + data[4:])
    except FrameError:
        return "no frame"
    CLOCK.advance(FAILURES_WITHIN_MS + 1)  # nobody has failed too often
    try:
        GATE.admit(command, PEER, led_to)  # type: ignore[arg-type]
    except Denied:
        return "denied"
    _check(command)
    return "let through"


def _check(command: Command) -> None:
    name = command.fields["AccessKey"]
    user = USERS.by_name[name]
    assert PEER.attachments[CALLER] is user
    assert user.status is UserStatus.ENABLED
    fields = command.fields
    by_older = {key: value for key, value in fields.items() if key != "_UNIQUE_KEY_QUERY"}
    assert fields["Signature"] in {signature(user.password, read, command.body) for read in (fields, by_older)}
    allowed = {(grant.resource.partition(":")[0], action) for grant in GRANTED[name] for action in grant.actions}
    names_nothing = command.code in LISTS and LISTS[command.code] not in bytes(command.body)
    for need in SERVED[command.code].needs:
        if not need.optional and not (names_nothing and need.named_by is NamedBy.BODY):
            assert any((need.resource.value, action) in allowed for action in need.actions), need


if __name__ == "__main__":
    logging.disable()
    sys.exit(run("closed door", corpus(), parse, TOKENS, refusals=()))
