"""Names of topics and groups in gRPC messages."""

from __future__ import annotations

import pytest

from orbitmq.protocol.grpc.messages import Code, Resource
from orbitmq.protocol.grpc.resource_names import group_of, put_name, topic_of
from orbitmq.protocol.grpc.status import RpcError


def test_the_namespace_of_a_client_is_not_looked_at() -> None:
    assert topic_of(Resource(resource_namespace="rmq_sys_", name="Orders")) == "Orders"
    assert group_of(Resource(resource_namespace="..", name="group")) == "group"


@pytest.mark.parametrize("name", ["g" * 120, "%RETRY%g", "CID_RMQ"])
def test_groups(name: str) -> None:
    assert group_of(Resource(name=name)) == name


@pytest.mark.parametrize("name", ["", "\t", "a b", "g" * 121, "CID_RMQ_SYS_TRANS", "\u00e4"])
def test_what_is_no_group(name: str) -> None:
    with pytest.raises(RpcError) as caught:
        group_of(Resource(name=name))
    assert caught.value.code is Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "orbitmq_sys_x"])
def test_system_topics_are_for_nobody(name: str) -> None:
    with pytest.raises(RpcError) as caught:
        topic_of(Resource(name=name))
    assert caught.value.code is Code.ILLEGAL_TOPIC


@pytest.mark.parametrize(
    ("stored", "namespace", "name"),
    [
        ("Orders", "", "Orders"),
        ("ns%Orders", "ns", "Orders"),
        ("%DLQ%g", "", "%DLQ%g"),
        ("ns%", "", "ns%"),
        ("a%b%c", "a", "b%c"),
    ],
)
def test_stored_names_for_clients(stored: str, namespace: str, name: str) -> None:
    resource = Resource()
    put_name(resource, stored)
    assert resource == Resource(resource_namespace=namespace, name=name)
