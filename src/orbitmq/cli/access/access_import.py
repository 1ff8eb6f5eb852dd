"""Users and policies from a file: RocketMQ 4's plain_acl.yml, or JSON as `orbitmq access` lists it.

Rules of this file
1. The whole file is read and understood before anything is asked of a broker.
2. A user that exists is left as it is, with its policies, as RocketMQ's own migration does, and compared: whoever repeats an import
   that ended half done learns what is missing. Where the file has policies without their user, they are added to what the user has.
3. No error quotes the file: passwords stand in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orbitmq.cli.asking.cluster_access import run
from orbitmq.cli.shared.input_file import read_whole
from orbitmq.cli.shared.output import note
from orbitmq.errors import ConfigurationError, ProtocolError
from orbitmq.limits.cli import ACCESS_FILE_BYTES_MAX

if TYPE_CHECKING:
    from orbitmq.access.policies import Entry, PolicyType
    from orbitmq.client import Client
    from orbitmq.client.admin import PolicyInfo, UserInfo


class _Import(NamedTuple):
    """A user to be created, or None for one that exists, and policies to be set."""

    name: str
    user: UserInfo | None
    policies: list[PolicyInfo]


def import_file(file: Path, *, dry_run: bool, broker: str | None, cluster: str | None) -> list[dict[str, Any]]:
    """A row for each user and broker: what was done, or would be."""
    imports = _read(file)

    async def work(client: Client) -> list[dict[str, Any]]:
        rows = []
        for name, known in (await client.admin.users(broker=broker, cluster=cluster)).items():
            existing = {info.username: info for info in known}
            for one in imports:
                done = await _import(client, one, existing.get(one.name), name, dry_run)
                entries = sum(len(policy.entries) for policy in one.policies)
                rows.append({"user": one.name, "done": done, "entries": entries, "broker": name})
        return rows

    return run(work)


async def _import(client: Client, one: _Import, known: UserInfo | None, broker: str, dry_run: bool) -> str:
    if one.user is None and known is None:
        return "skipped: there is no such user"
    if one.user is not None and known is not None:
        acl = (await client.admin.user_policies(one.name, broker=broker))[broker]
        differing = _differing(one.user, known)
        if _entries(one.policies) != _entries([] if acl is None else acl.policies):
            differing.append("policies")
        return f"left as it is, differs: {', '.join(differing)}" if differing else "already so"
    if not dry_run:
        if one.user is not None:
            is_super = (one.user.user_type or "").lower() == "super"
            enabled = (one.user.user_status or "").lower() != "disable"
            await client.admin.create_user(
                one.name, one.user.password or "", super_user=is_super, enabled=enabled, broker=broker
            )
        if one.policies:
            await client.admin.set_policies(one.name, one.policies, broker=broker)
    return "policies set" if one.user is None else "created"


def _differing(wanted: UserInfo, known: UserInfo) -> list[str]:
    """Names of what a user has otherwise. A password that is not told, which needs a super user, is not compared."""
    pairs = {
        "password": (wanted.password, known.password or wanted.password),
        "type": ((wanted.user_type or "normal").lower(), (known.user_type or "normal").lower()),
        "status": ((wanted.user_status or "enable").lower(), (known.user_status or "enable").lower()),
    }
    return [name for name, (one, other) in pairs.items() if one != other]


def _entries(policies: list[PolicyInfo]) -> set[tuple[PolicyType, Entry]]:
    """The same for the same policies, in whatever order and spelling they are listed."""
    from orbitmq.access.policies import PolicyType
    from orbitmq.access.policy_bodies import read_policies
    from orbitmq.protocol.remoting.bodies import AclInfo

    if not policies:
        return set()
    acl = read_policies(AclInfo(None, policies), "")
    return {
        *((PolicyType.CUSTOM, entry) for entry in acl.custom),
        *((PolicyType.DEFAULT, entry) for entry in acl.default),
    }


def _read(file: Path) -> list[_Import]:
    data = read_whole(file, ACCESS_FILE_BYTES_MAX)
    try:
        return _plain(data, str(file)) if file.suffix in (".yml", ".yaml") else _json(data)
    except (ValueError, ProtocolError) as error:
        raise ConfigurationError(f"{file}: {error}", remedy="correct the file; nothing was done") from None


def _plain(data: bytes, name: str) -> list[_Import]:
    from orbitmq.access.plain.accounts import read_plain_tree
    from orbitmq.access.plain.moving import moved_over
    from orbitmq.access.plain.yaml_text import read_yaml
    from orbitmq.access.policy_bodies import acl_info, user_info

    plain = read_plain_tree(read_yaml(data), name)
    for warning in plain.warnings:
        note(f"{name}: {warning}")
    moved = [moved_over(account) for account in plain.accounts]
    note(
        "addresses without signature (whiteRemoteAddress, globalWhiteRemoteAddresses) have no counterpart and are left out"
    )
    return [_Import(user.name, user_info(user, tell_password=True), acl_info(acl).policies) for user, acl in moved]


def _json(data: bytes) -> list[_Import]:
    from orbitmq.access.policy_bodies import acl_info, read_policies, read_subject
    from orbitmq.protocol.remoting import fastjson
    from orbitmq.protocol.remoting.bodies import AclInfo, UserInfo

    try:
        document = fastjson.loads(data)
    except ProtocolError:
        raise ValueError("it is no JSON") from None
    if isinstance(document, dict):
        document = [*document.get("users", ()), *document.get("policies", ())]
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise ValueError("it is no list of users or policies")
    users: dict[str, UserInfo] = {}
    policies: dict[str, list[PolicyInfo]] = {}
    for item in document:
        if "subject" in item:
            name = read_subject(str(item["subject"]))
            policies[name] = acl_info(read_policies(AclInfo.from_value(item), name)).policies
        else:
            info = UserInfo.from_value(item)
            if not info.username or not info.password:
                raise ValueError(f"user {info.username!r} has no password; list users with --passwords")
            users[info.username] = info
    return [_Import(name, users.get(name), policies.get(name, [])) for name in dict.fromkeys([*users, *policies])]
