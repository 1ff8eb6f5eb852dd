"""Requests about users and their policies: 3001 to 3010.

Rules of this file
1. A change is in force with the next request, and answered when it is saved.
2. What a request is about is told to the audit log. Of a password only that it has changed.
3. Passwords are told to super users only; RocketMQ tells them to everybody who may read the cluster's settings.
4. Where nobody is asked who they are, `unknown_callers` refuses all of this.

(RocketMQ remoting, user and policy administration; broker, auth in 5.x.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from orbitmq.access.audit import About, Secret, Subject
from orbitmq.access.gate import CALLER, Denied
from orbitmq.access.policies import Acl, Entry, PolicyType, action_words, read_resource, read_word
from orbitmq.access.policy_bodies import acl_info, read_policies, read_subject, read_user, user_info
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.saved_access import SavedAccess
from orbitmq.broker.table_saving import TableSaving
from orbitmq.errors import ProtocolError
from orbitmq.limits.access import LISTED_BYTES_MAX, POLICY_ENTRIES_LISTED_MAX
from orbitmq.protocol.remoting.bodies import AclInfo
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

USERS: Final = "users and policies"
"""Name of the table in the log, and of the wake-up that saves it again."""

_Read = TypeVar("_Read")


class AccessRequests(Room):
    def __init__(self, access: SavedAccess, saving: TableSaving) -> None:
        self._access = access
        self._table = access.table
        self._saving = saving

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._merge_acl,
            RequestCode.AUTH_UPDATE_ACL: self._merge_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }

    def subjects(self) -> Mapping[RequestCode, Subject]:
        code = RequestCode
        users = (code.AUTH_CREATE_USER, code.AUTH_UPDATE_USER, code.AUTH_DELETE_USER)
        policies = (code.AUTH_CREATE_ACL, code.AUTH_UPDATE_ACL, code.AUTH_DELETE_ACL)
        return {**dict.fromkeys(users, self._about_user), **dict.fromkeys(policies, self._about_policies)}

    def _about_user(self, command: Command, peer: Peer) -> About:
        return About(partial(self._state, _username(command)))

    def _about_policies(self, command: Command, peer: Peer) -> About:
        name = read_subject(command.text("subject") or AclInfo.decode(command.body).subject or "")
        return About(partial(self._state, name))

    def _state(self, name: str) -> dict[str, str]:
        """A user and its policies as they are."""
        user = self._table.user(name)
        if user is None:
            return {}
        state = {"user": f"{user.type.value}, {user.status.value}", "password": Secret(user.password)}
        acl = self._table.acl(name)
        return state if acl is None else {**state, **_texts(acl)}

    def close(self) -> None:
        self._saving.finish()
        self._access.save()

    # --- users ------------------------------------------------------------------------------------------------------

    def _create_user(self, command: Command, peer: Peer) -> Command | None:
        name, change = _username(command), _read(lambda: read_user(command.body))
        type_, status = change.type or UserType.NORMAL, change.status or UserStatus.ENABLED
        self._table.create_user(User(name, change.password or "", type_, status), _caller(peer))
        return self._changed(command, peer, name)

    def _update_user(self, command: Command, peer: Peer) -> Command | None:
        name, change = _username(command), _read(lambda: read_user(command.body))
        self._table.update_user(
            name, _caller(peer), password=change.password or "", type=change.type, status=change.status
        )
        return self._changed(command, peer, name)

    def _delete_user(self, command: Command, peer: Peer) -> Command | None:
        name = command.text("username")
        if not self._table.delete_user(name, _caller(peer)):
            return response(command, ResponseCode.SUCCESS)
        return self._changed(command, peer, name)

    def _get_user(self, command: Command, peer: Peer) -> Command:
        user = self._table.user(_username(command))
        body = b"" if user is None else user_info(user, tell_password=_is_super(peer)).encode()
        return response(command, ResponseCode.SUCCESS, body=body)

    def _list_users(self, command: Command, peer: Peer) -> Command:
        users = self._table.users(command.text("filter").strip())
        tell = _is_super(peer)
        return response(
            command, ResponseCode.SUCCESS, body=_list(user_info(user, tell_password=tell) for user in users)
        )

    # --- policies ---------------------------------------------------------------------------------------------------

    def _merge_acl(self, command: Command, peer: Peer) -> Command | None:
        acl = _read(lambda: _acl(command))
        self._table.merge_acl(acl, _caller(peer))
        return self._changed(command, peer, acl.user)

    def _delete_acl(self, command: Command, peer: Peer) -> Command | None:
        name = _subject(command)
        policy_text, resource_text = command.text("policyType"), command.text("resource")
        policy = _read(lambda: read_word(PolicyType, "policy type", policy_text or PolicyType.CUSTOM.value))
        # RocketMQ takes a resource that it cannot read for none, and deletes everything.
        resource = _read(lambda: read_resource(resource_text)) if resource_text.strip() else None
        self._table.delete_acl(name, _caller(peer), policy, resource)
        return self._changed(command, peer, name)

    def _get_acl(self, command: Command, peer: Peer) -> Command:
        acl = self._table.acl(_subject(command))
        return response(command, ResponseCode.SUCCESS, body=b"" if acl is None else acl_info(acl).encode())

    def _list_acls(self, command: Command, peer: Peer) -> Command:
        acls = self._table.acls(command.text("subjectFilter").strip(), command.text("resourceFilter").strip())
        count = sum(len(acl.custom) + len(acl.default) for acl in acls)
        if count > POLICY_ENTRIES_LISTED_MAX:
            raise Denied(
                ResponseCode.SYSTEM_ERROR,
                f"{count} entries are more than one answer holds ({POLICY_ENTRIES_LISTED_MAX}): "
                "ask for fewer with a filter for the subject or the resource",
            )
        return response(command, ResponseCode.SUCCESS, body=_list(map(acl_info, acls)))

    def _changed(self, command: Command, peer: Peer, name: str) -> Command | None:
        self._access.changed(name)
        return self._saving.answer(command, peer, response(command, ResponseCode.SUCCESS), refuses=True)


def _caller(peer: Peer) -> User | None:
    caller = peer.attachments.get(CALLER)
    return caller if isinstance(caller, User) else None


def _is_super(peer: Peer) -> bool:
    caller = _caller(peer)
    return caller is not None and caller.type is UserType.SUPER


def _username(command: Command) -> str:
    name = command.text("username")
    if not name.strip():
        raise Denied(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _subject(command: Command) -> str:
    return _read(lambda: read_subject(command.text("subject")))


def _acl(command: Command) -> Acl:
    """The policies that a request brings. RocketMQ takes the subject of the body where header and body name two."""
    info = AclInfo.decode(command.body)
    named = command.text("subject") or info.subject or ""
    if info.subject and read_subject(info.subject) != read_subject(named):
        raise ValueError(f"the header is about {named!r}, the body about {info.subject!r}")
    return read_policies(info, read_subject(named))


def _read(read: Callable[[], _Read]) -> _Read:
    """What `read` answers; its complaint about what was sent is an answer of RocketMQ's kind."""
    try:
        return read()
    except (ValueError, ProtocolError) as error:
        raise Denied(ResponseCode.NO_PERMISSION, str(error)) from error


def _list(infos: Iterable[JsonBody]) -> bytes:
    """A body, or none where there is nothing to tell. `Denied` where it would be too long for a frame."""
    encoded, size = [], 0
    for info in infos:
        encoded.append(msgspec.Raw(info.encode()))
        size += len(encoded[-1]) + 1
        if size > LISTED_BYTES_MAX:
            raise Denied(
                ResponseCode.SYSTEM_ERROR,
                f"the list has more than {LISTED_BYTES_MAX} bytes, which no answer holds: ask for fewer with a filter",
            )
    return msgspec.json.encode(encoded) if encoded else b""


def _texts(acl: Acl) -> dict[str, str]:
    """Each policy by what it is for: of a hundred only those that change are told."""
    policies = ((PolicyType.CUSTOM, acl.custom), (PolicyType.DEFAULT, acl.default))
    return {
        f"{policy.value} policy on {entry.resource.text}": _entry_text(entry)
        for policy, entries in policies
        for entry in entries
    }


def _entry_text(entry: Entry) -> str:
    sources = f" from {', '.join(entry.sources)}" if entry.sources else ""
    return f"{entry.decision.value} {'|'.join(action_words(entry.actions))}{sources}"
