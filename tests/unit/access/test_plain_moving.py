"""Accounts of RocketMQ 4 as users and policies."""

from __future__ import annotations

import pytest

from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.plain.accounts import read_plain_tree
from orbitmq.access.plain.moving import moved_over
from orbitmq.access.plain.yaml_text import Value, read_yaml
from orbitmq.access.policies import Acl, read_entry
from orbitmq.access.users import UserType
from orbitmq.protocol.remoting.requests import Action, ResourceType

FILE = b"""
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB]
  groupPerms: [groupA=PUB, groupB=SUB]
- accessKey: rocketmq2
  secretKey: 87654321
  admin: true
"""


def test_an_account_becomes_a_user_with_policies() -> None:
    account, admin = read_plain_tree(read_yaml(FILE), "plain_acl.yml").accounts
    user, acl = moved_over(account)
    assert (user.name, user.password, user.type, acl.user) == ("RocketMQ", "12345678", UserType.NORMAL, "RocketMQ")
    assert acl.custom == (
        read_entry("Topic:topicA", ["All"], [], "Deny"),
        read_entry("Topic:topicB", ["Pub", "Sub"], [], "Allow"),
        read_entry("Group:groupA", ["Pub"], [], "Allow"),
        read_entry("Group:groupB", ["Sub"], [], "Allow"),
    )
    assert acl.default == (
        read_entry("Group:groupA", ["All"], [], "Deny"),
        read_entry("Group:*", ["Sub"], [], "Allow"),
    )
    user, acl = moved_over(admin)
    assert (user.type, acl.custom, acl.default) == (UserType.SUPER, (), ())


@pytest.mark.parametrize("default", ["DENY", "PUB", "SUB", "PUB|SUB"])
def test_nobody_may_more_than_before(default: str) -> None:
    named = {"none": "DENY", "pub": "PUB", "sub": "SUB", "both": "PUB|SUB"}
    listed = [f"{name}={words}" for name, words in named.items()]
    members: dict[str, Value] = {"accessKey": "key-of-ann", "secretKey": "secret-of-ann", "defaultTopicPerm": default}
    (account,) = read_plain_tree({"accounts": [{**members, "topicPerms": [*listed]}]}, "plain_acl.yml").accounts
    permissions = Permissions(moved_over(account)[1])
    for name, words in {**named, "other": default}.items():
        for action in (Action.PUB, Action.SUB):
            needed = Needed(ResourceType.TOPIC, name, frozenset({action}))
            may = action.value.upper() in words.split("|")
            assert permissions.judge(needed, "10.0.0.1").is_allowed == may, (name, action)


def test_a_name_with_a_star_stands_for_nothing_more() -> None:
    account: Value = {"accessKey": "key-of-ann", "secretKey": "secret-of-ann", "topicPerms": ["*=PUB", "a*=SUB"]}
    (read,) = read_plain_tree({"accounts": [account]}, "plain_acl.yml").accounts
    assert moved_over(read)[1] == Acl("key-of-ann")
