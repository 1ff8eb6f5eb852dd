"""Files of accounts: what they say, what is refused with its place, and which account counts where a key stands twice."""

from __future__ import annotations

import pytest
from rich.pretty import pretty_repr

from orbitmq.access.plain.accounts import FileVersion, PlainFile, PlainPermission, read_plain_tree
from orbitmq.access.plain.addresses import address_fields
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.plain.yaml_text import read_yaml
from orbitmq.access.users import UserType

SAMPLE = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - "%RETRY%groupC=PUB"
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB = SUB|PUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true

dataVersion:
- counter: 3
  timestamp: 1700000000000
"""


def read(text: str, name: str = "plain_acl.yml") -> PlainFile:
    return read_plain_tree(read_yaml(text.encode()), name)


def account(**members: str) -> str:
    lines = {"accessKey": "RocketMQ", "secretKey": "Sesame-Sesame", **members}
    return "accounts:\n- " + "\n  ".join(f"{member}: {value}" for member, value in lines.items())


def test_the_file_that_comes_with_rocketmq_is_read() -> None:
    file = read(SAMPLE)
    first, second = file.accounts
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert first.default_topic is PlainPermission.DENY
    assert first.default_group is PlainPermission.SUB
    assert first.topics == {"topicA": PlainPermission.DENY, "topicB": PlainPermission.PUB | PlainPermission.SUB}
    assert {group: permission.text for group, permission in first.groups.items()} == {
        "groupA": "DENY",
        "groupB": "PUB|SUB",
        "groupC": "PUB",
    }
    assert not first.white_addresses.matches(address_fields("192.168.1.1"))
    assert second.admin
    assert second.user.type is UserType.SUPER
    assert second.white_addresses.matches(address_fields("192.168.1.1"))
    assert file.version == FileVersion(3, 1_700_000_000_000)
    assert file.warnings == ()
    table = PlainTable([file])
    assert table.lets_in(address_fields("10.10.103.9"))
    assert not table.lets_in(address_fields("10.10.104.9"))


def test_a_file_without_accounts_says_so_and_an_empty_one_cannot_be_used() -> None:
    assert read("accounts: []") == PlainFile("plain_acl.yml", (), (), FileVersion(), ())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (account(accessKey="short"), "account 1 (accessKey=short): accessKey and secretKey need"),
        (account(secretKey="Sesame"), "account 1 (accessKey=RocketMQ): accessKey and secretKey need"),
        (account(secretKey=""), "accessKey and secretKey need"),
        (account(secretKey="[Sesame-Sesame]"), "secretKey must be a single text"),
        (account(admin="maybe"), "admin must be true or false"),
        (account(defaultTopicPerm="PUBSUB"), "defaultTopicPerm: 'PUBSUB' is none of DENY, PUB, SUB"),
        (account(topicPerms="[a=PUB, b]"), "topicPerms, entry 2 must be a name"),
        (account(groupPerms="[a=ALL]"), "groupPerms, entry 1: 'ALL' is none of"),
        (account(groupPerms="[a=b=PUB]"), "groupPerms, entry 1: 'b=PUB' is none of"),
        (account(topicPerms="a=PUB"), "topicPerms must be a list"),
        (account(whiteRemoteAddress="10.0.0.300"), "'10.0.0.300' is no address"),
        ("globalWhiteRemoteAddresses: [10.0.0.300]", "'10.0.0.300' is no address"),
        ("", "the file is empty"),
        ("# Sesame", "the file is empty"),
        ("accounts: [Sesame-Sesame]", "account 1 must be a table"),
        ("accounts: {a: Sesame-Sesame}", "accounts must be a list"),
        ("Sesame-Sesame", "the file must be a table"),
        ("dataVersion: [{counter: many}]", "counter and timestamp must be numbers"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place_and_without_its_secret(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=r"^conf/plain_acl\.yml: ") as refused:
        read(text, "conf/plain_acl.yml")
    assert place in str(refused.value)
    assert "Sesame" not in str(refused.value)


def test_members_without_meaning_are_warned_about() -> None:
    file = read(account(topicPerm="[a=DENY]") + "\naccount: []")
    assert file.warnings == (
        "the file: 'account' has no meaning and is ignored",
        "account 1 (accessKey=RocketMQ): 'topicPerm' has no meaning and is ignored",
    )


def test_a_key_in_two_files_belongs_to_the_first() -> None:
    files = [read(account(admin="true"), "a.yml"), read(account(admin="false"), "b.yml")]
    table = PlainTable(files)
    assert table.accounts["RocketMQ"].admin
    assert table.file_of == {"RocketMQ": "a.yml"}
    assert table.warnings == [
        "b.yml: access key 'RocketMQ' stands in a.yml already, where it counts; this one has no effect"
    ]


def test_no_account_shows_its_secret() -> None:
    file = read(account())
    assert "Sesame" not in repr(file) + pretty_repr(file)
    assert "Sesame" not in repr(file.accounts[0].user)
