"""What administration leaves in the audit log: who asked, from where, for what, and what that changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.broker.conftest import ListPeer, Rig

from orbitmq.access.audit import AUDITED, Secret, audited, caller_text, tell, tell_denied
from orbitmq.access.audit import About as AboutRequest
from orbitmq.access.gate import CALLER, Denied
from orbitmq.access.users import User
from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.limits.access import AUDIT_LINE_CHARS_MAX, AUDIT_LINES_MAX
from orbitmq.protocol.names import REDRIVE_GROUP
from orbitmq.protocol.remoting.commands import BY_TOOL, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.requests import REQUESTS, RequestServer
from orbitmq.telemetry.logs import BoundedHandler, TextFormatter

TOPIC = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
}  # fmt: skip


class Lines:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self) -> list[str]:
        """The texts of the lines since the last look."""
        found = [record.getMessage() for record in self._caplog.records if record.name == "orbitmq.audit"]
        self._caplog.clear()
        return found

    def one(self) -> str:
        (line,) = self.take()
        return line


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    with caplog.at_level(logging.INFO, "orbitmq.audit"):
        yield Lines(caplog)


def test_a_topic_is_created_changed_and_deleted(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    created = lines.one()
    assert created.startswith("somebody unknown at 10.0.0.9:40001: UPDATE_AND_CREATE_TOPIC topic=orders ")
    assert "; topic orders: none -> {" in created
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "writeQueueNums": 8})
    _, _, change = lines.one().partition("; topic orders: ")
    before, after = (json.loads(text) for text in change.split(" -> "))
    assert (before["writeQueueNums"], after["writeQueueNums"]) == (2, 8)
    rig.broker.offsets.commit("readers", "orders", 1, 17)
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    deleted = lines.one()
    assert "DELETE_TOPIC_IN_BROKER topic=orders; topic orders: {" in deleted
    assert deleted.endswith('} -> none; offsets of readers on orders: {"1": 17} -> none')


def test_a_group_is_created_and_deleted_with_its_offsets(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"readers","retryMaxTimes":3}')
    assert "; group readers: none -> {" in lines.one()
    rig.broker.offsets.commit("readers", "orders", 0, 5)
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers", "cleanOffset": True})
    deleted = lines.one()
    assert "DELETE_SUBSCRIPTIONGROUP groupName=readers cleanOffset=true; group readers: {" in deleted
    assert deleted.endswith('offsets of readers on orders: {"0": 5} -> none')


def test_offsets_are_reset_and_copied(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    for _ in range(4):
        rig.sent_ok("orders")
    for group in ("readers", "others"):
        rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps({"groupName": group}).encode())
    rig.broker.offsets.commit("readers", "orders", 0, 4)
    lines.take()
    reset = {"group": "readers", "topic": "orders", "queueId": 0, "offset": 1, "timestamp": 0, "isForce": True}
    rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert lines.one().endswith('; offsets: {"0": 4} -> {"0": 1}')
    rig.call(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "readers", "destGroup": "others", "topic": "orders"})
    assert lines.one().endswith('; offsets of others on orders: none -> {"0": 1}')


def test_a_commit_is_administration_where_no_consumer_does_it(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    for _ in range(9):
        rig.sent_ok("orders")
    member = rig.peer()
    rig.heartbeat(member, "c@1", "readers", ["orders"])
    lines.take()

    def commit(offset: int, peer: ListPeer | None = None, **more: Any) -> None:
        fields = {"consumerGroup": "readers", "topic": "orders", "queueId": 0, "commitOffset": offset, **more}
        rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields, peer=peer)

    commit(8, member)
    commit(3, member)
    commit(5)
    assert lines.take() == [], "members go where they like, and readers without a membership go on"
    commit(2)
    assert lines.one().endswith('; offsets: {"0": 5} -> {"0": 2}'), "so do the tools of RocketMQ take a group back"
    commit(7, **{BY_TOOL: True})
    assert lines.one().endswith('; offsets: {"0": 2} -> {"0": 7}'), (
        "ours say that they are tools: a reset, the place of a redrive"
    )
    assert REDRIVE_GROUP, "the group of the latter"


def test_settings_are_told_with_their_old_and_new_values(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24")
    assert lines.one().endswith("UPDATE_BROKER_CONFIG keys=fileReservedTime; fileReservedTime: 72 -> 24")
    answer = rig.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"tls.server.keyPassword=hunter2")
    assert answer.code != ResponseCode.SUCCESS
    refused = lines.one()
    assert refused.endswith("is refused, SYSTEM_ERROR: UPDATE_BROKER_CONFIG keys=tls.server.keyPassword")
    assert "hunter2" not in refused


def test_of_a_group_or_topic_that_changes_what_differs_is_told_however_much_stays(rig: Rig, lines: Lines) -> None:
    group = {"groupName": "readers", "whichBrokerWhenConsumeSlowly": 1}
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(group).encode())
    lines.take()
    for change in ({"whichBrokerWhenConsumeSlowly": 7}, {"whichBrokerWhenConsumeSlowly": 7}):
        rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(group | change).encode())
    told = "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP groupName=readers"
    changed, same = lines.take()
    assert changed.endswith(
        f'{told}; group readers: {{"whichBrokerWhenConsumeSlowly": 1}} -> {{"whichBrokerWhenConsumeSlowly": 7}}'
    )
    assert same.endswith(told), "which group it was about is said also where nothing changed"
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    lines.take()
    rig.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "perm": 4, "attributes": "+message.type=NORMAL"})
    assert lines.one().endswith(
        '; topic orders: {"attributes": {}, "perm": 6} -> {"attributes": {"message.type": "NORMAL"}, "perm": 4}'
    )


def test_what_cannot_be_read_or_is_refused_leaves_a_line_too(rig: Rig, lines: Lines) -> None:
    rig.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b"no JSON")
    assert "is refused, SYSTEM_ERROR: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP" in lines.one()
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
    assert "DELETE_TOPIC_IN_BROKER topic=TBW102" in lines.one()
    rig.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert lines.take() == [], "who only looks leaves none"


def test_whom_the_gate_lets_not_through_leaves_a_line(make_rig: Any, lines: Lines) -> None:
    class Closed:
        def admit(self, command: Command, peer: Any, led_to: Any) -> None:
            raise Denied(ResponseCode.NO_PERMISSION, "nobody may do that")

    rig = make_rig()
    rig.broker._gate = Closed()
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    rig.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert lines.one().endswith("is refused, NO_PERMISSION: DELETE_TOPIC_IN_BROKER topic=orders")


def test_who_is_denied_by_the_table_of_users_leaves_one_line_too(lines: Lines) -> None:
    command, peer = request(RequestCode.AUTH_CREATE_USER, {"username": "shop"}), ListPeer(ManualClock(), 1)

    def handler(command: Command, peer: Any) -> Command:
        raise Denied(ResponseCode.NO_PERMISSION, "the user is there already")

    with pytest.raises(Denied) as denied:
        audited(RequestCode.AUTH_CREATE_USER, handler, lambda command, peer: AboutRequest())(command, peer)
    tell_denied(command, peer, denied.value)  # as a server does with every one
    assert lines.one().endswith("is refused, NO_PERMISSION: AUTH_CREATE_USER username=shop")


def test_secrets_stay_secret_and_control_characters_in_their_line() -> None:
    peer = ListPeer(ManualClock(), 1)
    peer.attachments[CALLER] = User("root\nERROR forged", "root-secret")
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(TextFormatter().format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("orbitmq.audit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    passwords = [Secret("old-secret"), Secret("new-secret")]
    try:
        about = AboutRequest(lambda: {"password": passwords.pop(0)}, "name=\x1b[31mred")
        command = request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "a\nb", "secretKey": "field-secret", "Signature": "s3cret"}
        )
        answer = lambda command, peer: response(command, ResponseCode.SUCCESS)  # noqa: E731
        audited(RequestCode.UPDATE_AND_CREATE_TOPIC, answer, lambda command, peer: about)(command, peer)
        denied = lambda command, peer: (_ for _ in ()).throw(Refusal(ResponseCode.SYSTEM_ERROR, "it was field-secret"))  # noqa: E731
        passwords += [Secret("same-secret")] * 2
        with pytest.raises(Refusal):
            audited(RequestCode.UPDATE_AND_CREATE_TOPIC, denied, lambda command, peer: about)(command, peer)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert "password: ****** -> ******" in found[0]
    assert "password" not in found[1]
    for line in found:
        assert line.isprintable()
        assert "secret" not in line
        assert "s3cret" not in line


def test_a_line_is_bounded(lines: Lines) -> None:
    tell(caller_text(ListPeer(ManualClock(), 1)), "long", "x" * 100_000)
    assert len(lines.one()) < AUDIT_LINE_CHARS_MAX + 100


def test_more_lines_of_administration_are_written_than_of_others(
    lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    handler = BoundedHandler(sys.stderr, repeats_max=2)
    made = logging.LogRecord("orbitmq.audit", logging.INFO, "", 0, "%s: %s", ("somebody", "did it"), None)
    made.repeats_max = AUDIT_LINES_MAX
    made.created = 1_000.0
    for _ in range(AUDIT_LINES_MAX + 5):
        handler.emit(made)
    handler.close()
    written = capsys.readouterr().err.splitlines()
    assert written[:-1] == ["somebody: did it"] * AUDIT_LINES_MAX
    assert written[-1].startswith("5 more lines like this were left out")


def test_every_request_that_changes_something_for_tools_is_audited() -> None:
    by_name = {RequestCode(code).name for code in AUDITED}
    assert {
        "DELETE_TOPIC_IN_BROKER",
        "AUTH_DELETE_USER",
        "RECALL_TIMERS",
        "PROMOTE_SLAVE",
        "PUT_KV_CONFIG",
        "UPDATE_NAMESRV_CONFIG",
    } <= by_name
    served = {
        row.code.name for row in REQUESTS.values() if row.served_by & {RequestServer.BROKER, RequestServer.NAME_SERVER}
    }
    assert by_name <= served
    assert not [
        name
        for name in by_name
        if name.startswith(("GET_", "QUERY_", "LIST_")) and name != "GET_BROKER_CLUSTER_ACL_CONFIG"
    ]
