"""What a broker's list of connections says about a group whose members do not fit together."""

from __future__ import annotations

from orbitmq.client.consuming.group_agreement import different_subscriptions, shared_client_ids
from orbitmq.client.consuming.subscription import subscribe
from orbitmq.protocol.remoting.bodies import ClientConnection, ConsumerConnection, MessageModel, SubscriptionData

CLUSTERING = MessageModel.CLUSTERING


def known(*subscriptions: tuple[str, str], model: MessageModel | None = CLUSTERING) -> ConsumerConnection:
    return ConsumerConnection(
        subscription_table={topic: subscribe(topic, tags, 1).body() for topic, tags in subscriptions},
        message_model=model,
    )


def differences(own: dict[str, str], group: ConsumerConnection) -> list[str]:
    return different_subscriptions({topic: subscribe(topic, tags, 9) for topic, tags in own.items()}, CLUSTERING, group)


def test_members_that_agree() -> None:
    assert differences({"T": "a || b"}, known(("T", "b||a"))) == []
    assert differences({"T": "*"}, known(("T", "*"), ("%RETRY%g", "*"), model=None)) == []
    assert differences({"T": "*", "%RETRY%g": "*"}, known(("T", "*"))) == []


def test_another_clients_way_to_say_everything() -> None:
    group = ConsumerConnection(subscription_table={"T": SubscriptionData(topic="T", sub_string=None)})
    assert differences({"T": "*"}, group) == []


def test_differences_are_named() -> None:
    assert differences({"T": "a"}, known(("T", "b"))) == ["of 'T' this member wants 'a', another 'b'"]
    assert differences({"T": "a"}, known(("T", "*"))) == ["of 'T' this member wants 'a', another '*'"]
    assert differences({"T": "*", "U": "*"}, known(("T", "*"))) == ["this member subscribes to 'U', another does not"]
    assert differences({"T": "*"}, known(("T", "*"), ("V", "*"))) == [
        "another member subscribes to 'V', this one does not"
    ]
    assert differences({"T": "*"}, known(("T", "*"), model=MessageModel.BROADCASTING)) == [
        "this member is clustering, another broadcasting"
    ]


def test_a_filter_of_another_kind_differs() -> None:
    group = known(("T", "*"))
    group.subscription_table["T"].expression_type = "SQL92"
    assert len(differences({"T": "*"}, group)) == 1


def test_equal_expressions_agree() -> None:
    mine = {"T": subscribe("T", "*", 9, sql="price > 10")}
    same, other = known(("T", "*")), known(("T", "*"))
    same.subscription_table = {"T": subscribe("T", "*", 1, sql="price > 10").body()}
    other.subscription_table = {"T": subscribe("T", "*", 1, sql="price > 11").body()}
    assert different_subscriptions(mine, CLUSTERING, same) == []
    assert different_subscriptions(mine, CLUSTERING, other) == [
        "of 'T' this member wants 'price > 10', another 'price > 11'"
    ]


def test_ids_that_are_used_twice() -> None:
    connections = [
        ClientConnection(client_id=client_id, client_addr=address)
        for client_id, address in (("a", "1:1"), ("b", "2:2"), ("a", "3:3"))
    ]
    shared = shared_client_ids(ConsumerConnection(connection_set=connections))
    assert shared == {"a": "a is used from 1:1 and 3:3"}
