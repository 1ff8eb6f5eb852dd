"""The table of requests: one row for each code, and what its words mean."""

from __future__ import annotations

import pytest

from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.request_rows import ROWS, Row
from orbitmq.protocol.remoting.requests import (
    REQUESTS,
    Action,
    NamedBy,
    Need,
    RequestServer,
    ResourceType,
    not_supported,
    read_row,
)

SERVERS_THAT_ASK = frozenset({RequestServer.BROKER, RequestServer.NAME_SERVER})


def test_every_code_has_one_row() -> None:
    assert sorted(row.code for row in ROWS) == sorted(RequestCode)


@pytest.mark.parametrize("row", REQUESTS.values(), ids=lambda row: row.code.name)
def test_a_row_is_whole(row) -> None:
    assert not (row.served_by and row.refused)
    assert row.signed == bool(row.served_by & SERVERS_THAT_ASK), "whatever a server answers has a rule for its callers"
    named = {field.name for field in row.header.request}
    assert {need.field for need in row.needs if need.named_by is NamedBy.FIELD} <= named
    assert not row.waits or RequestServer.BROKER in row.served_by


def test_the_words_of_needs() -> None:
    def needs(text: str) -> tuple[Need, ...]:
        return read_row(Row(RequestCode.PULL_MESSAGE, "broker", needs=text)).needs

    topic, group, get = ResourceType.TOPIC, ResourceType.GROUP, frozenset({Action.GET})
    assert needs("Topic=b:Pub") == (Need(topic, frozenset({Action.PUB}), NamedBy.FIELD, "b"),)
    assert needs("Group=g:Sub|Get")[0].actions == {Action.SUB, Action.GET}
    assert needs("Topic=t?:Get") == (Need(topic, get, NamedBy.FIELD, "t", optional=True),)
    assert needs("Topic=list[;]?:Get") == (Need(topic, get, NamedBy.FIELD, "list", ";", optional=True),)
    assert needs("Topic=@body:Get Group=@record:Get Topic=*:Get") == (
        Need(topic, get, NamedBy.BODY),
        Need(group, get, NamedBy.RECORD),
        Need(topic, get, NamedBy.ALL),
    )
    assert needs("Cluster:Get") == (Need(ResourceType.CLUSTER, get, NamedBy.SERVER),)
    assert needs("signed") == ()
    with pytest.raises(ValueError, match="Read"):
        needs("Topic=b:Read")


def test_what_rocketmq_lets_pass_is_asked_for_here() -> None:
    """A lite pull shows messages as a pull does; clients that come and go are known, whatever they name."""
    assert REQUESTS[RequestCode.LITE_PULL_MESSAGE].needs == REQUESTS[RequestCode.PULL_MESSAGE].needs != ()
    for code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG):
        assert REQUESTS[code].signed
    assert all(row.signed for row in REQUESTS.values() if row.needs)


def test_a_request_of_which_some_actions_only_look_needs_what_the_others_need() -> None:
    """FAR_TIER tells a state, and moves all far timers when its body says so."""
    (need,) = REQUESTS[RequestCode.FAR_TIER].needs
    assert (need.resource, need.actions) == (ResourceType.CLUSTER, {Action.UPDATE})


def test_what_is_not_served_is_refused_by_name_and_with_the_reason() -> None:
    broker, name_server = RequestServer.BROKER, RequestServer.NAME_SERVER
    assert not_supported(99_999, broker) == "request code 99999 is not supported by this broker"
    assert not_supported(RequestCode.GET_CLIENT_CONFIG, broker).endswith(
        "(GET_CLIENT_CONFIG) is not supported by this broker"
    )
    assert not_supported(RequestCode.ADD_BROKER, broker).endswith("no container of several")
    assert not_supported(RequestCode.REGISTER_BROKER, broker).endswith("by this broker: it is for a name server")
    assert not_supported(RequestCode.GET_CONSUMER_RUNNING_INFO, name_server).endswith("it is for a broker or a client")
