"""What requests of administrators change in a file of accounts: an account, its removal, the global white list.

A change is made in the tree of a file and not in values, so members that mean nothing here stay in it. Each counts up the version of its
file, as RocketMQ does.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbitmq.access.plain.accounts import read_version

if TYPE_CHECKING:
    from orbitmq.access.plain.yaml_text import Value

Tree = dict[str, "Value"]


def with_account(tree: Tree, members: Mapping[str, Value]) -> Tree:
    """The account with this `accessKey` has these members, and keeps those that are not given; it is made where there is none. As in
    RocketMQ it then stands last. ValueError for a tree that is no file of accounts."""
    accounts = _accounts(tree)
    before = next((account for account in accounts if _key(account) == members["accessKey"]), {})
    others = [account for account in accounts if account is not before]
    after = {**before, **members} if isinstance(before, dict) else dict(members)
    return {**tree, "accounts": [*others, after]}


def without_account(tree: Tree, access_key: str) -> Tree:
    """ValueError where there is no such account."""
    accounts = _accounts(tree)
    others = [account for account in accounts if _key(account) != access_key]
    if len(others) == len(accounts):
        raise ValueError("the file has no account with this access key")
    return {**tree, "accounts": others}


def with_white_addresses(tree: Tree, patterns: Sequence[str]) -> Tree:
    """The global white list of the file is this one."""
    return {**tree, "globalWhiteRemoteAddresses": list(patterns)}


def with_next_version(tree: Tree, now_ms: int) -> Tree:
    """The file was changed once more, now."""
    counter = read_version(tree).counter + 1
    return {**tree, "dataVersion": [{"counter": counter, "timestamp": now_ms}]}


def _accounts(tree: Tree) -> list[Value]:
    accounts = tree.get("accounts")
    if accounts is None:
        return []
    if not isinstance(accounts, list):
        raise ValueError("accounts must be a list")
    return accounts


def _key(account: Value) -> str:
    """The access key as text; empty where there is none."""
    key = account.get("accessKey") if isinstance(account, dict) else None
    return "" if key is None else str(key)
