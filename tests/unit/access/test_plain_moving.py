"""Accounts of RocketMQ 4 as users and policies."""

from __future__ import annotations

from orbitmq.access.plain.accounts import read_plain_tree
from orbitmq.access.plain.moving import moved_over
from orbitmq.access.plain.yaml_text import read_yaml
from orbitmq.access.policies import read_entry
from orbitmq.access.users import UserType

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
    assert acl.default == (read_entry("Group:*", ["Sub"], [], "Allow"),)
    user, acl = moved_over(admin)
    assert (user.type, acl.custom, acl.default) == (UserType.SUPER, (), ())
