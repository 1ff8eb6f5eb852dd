"""Changes of a file of accounts: what stays, what is replaced, and where it then stands."""

from __future__ import annotations

import pytest

from orbitmq.access.plain.changes import Tree, with_account, with_next_version, with_white_addresses, without_account


def tree() -> Tree:
    return {
        "accounts": [
            {"accessKey": "first", "secretKey": "1", "topicPerms": ["a=PUB"], "note": "kept"},
            {"accessKey": 22222222, "secretKey": "2"},
        ],
        "more": "kept",
    }


def test_members_that_are_not_given_stay() -> None:
    changed = with_account(tree(), {"accessKey": "first", "secretKey": "new"})
    assert changed == {
        "accounts": [
            {"accessKey": 22222222, "secretKey": "2"},
            {"accessKey": "first", "secretKey": "new", "topicPerms": ["a=PUB"], "note": "kept"},
        ],
        "more": "kept",
    }


def test_an_account_that_is_new_stands_last() -> None:
    changed = with_account(tree(), {"accessKey": "third"})
    assert isinstance(changed["accounts"], list)
    assert changed["accounts"][2] == {"accessKey": "third"}
    assert with_account({}, {"accessKey": "third"}) == {"accounts": [{"accessKey": "third"}]}


def test_a_key_that_looks_like_a_number_is_found() -> None:
    assert without_account(tree(), "22222222")["accounts"] == tree()["accounts"][:1]  # type: ignore[index]
    with pytest.raises(ValueError, match="no account"):
        without_account(tree(), "third")


def test_an_account_that_stands_twice_goes_as_a_whole() -> None:
    twice: Tree = {"accounts": [{"accessKey": "first"}, {"accessKey": "first"}]}
    assert without_account(twice, "first") == {"accounts": []}


def test_the_white_list_is_replaced() -> None:
    assert with_white_addresses({"globalWhiteRemoteAddresses": ["1"]}, ["2", "3"]) == {
        "globalWhiteRemoteAddresses": ["2", "3"]
    }


def test_the_version_counts_up() -> None:
    once = with_next_version(tree(), 7)
    assert once["dataVersion"] == [{"counter": 1, "timestamp": 7}]
    assert with_next_version(once, 9)["dataVersion"] == [{"counter": 2, "timestamp": 9}]


def test_a_change_leaves_what_it_was_given() -> None:
    before = tree()
    with_next_version(without_account(with_account(before, {"accessKey": "first", "secretKey": "new"}), "first"), 1)
    assert before == tree()
