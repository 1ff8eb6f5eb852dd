"""The users of a server and their policies, in memory; every change that a request can ask for is one method.

Rules of this file
1. A user exists before its policies, and they go with it.
2. A change is made whole or, where it raises `Denied`, not at all. The next request sees it.
3. What is kept never holds two entries about the same resource in one policy: the later one replaces the earlier.
4. Super users are created, changed and deleted by super users only.
5. No password stands in a remark.

(RocketMQ broker, auth in 5.x: metadata managers; answers and texts are those of 5.5.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from orbitmq.access.evaluation import Permissions
from orbitmq.access.gate import Denied
from orbitmq.access.policies import Acl, Entry, PolicyType, ResourcePattern, read_entry
from orbitmq.access.policy_bodies import entry_info
from orbitmq.access.users import User, UserStatus, UserType, subject_text
from orbitmq.limits.access import (
    PASSWORD_CHARS_MAX,
    POLICY_ENTRIES_MAX,
    POLICY_ENTRIES_PER_USER_MAX,
    RESOURCE_NAME_CHARS_MAX,
    USER_NAME_CHARS_MAX,
    USERS_MAX,
)
from orbitmq.protocol.remoting.bodies import PolicyEntryInfo
from orbitmq.protocol.remoting.codes import ResponseCode


class _SavedEntry(PolicyEntryInfo, forbid_unknown_fields=True):
    """An entry as the file has it."""


class _SavedUser(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A user with its policies as the file has it. A member that is not known here may be what keeps somebody out: it is refused."""

    password: str
    user_type: UserType
    user_status: UserStatus
    custom: list[_SavedEntry] = []
    default: list[_SavedEntry] = []


class _Known:
    """What is known about one user. Never changed: a change puts another one in its place."""

    __slots__ = ("_permissions", "acl", "text", "user")

    def __init__(self, user: User, acl: Acl) -> None:
        self.user = user
        self.acl = acl
        self.text = msgspec.Raw(b"\n" + _saved_text(user, acl))
        """What the file says about the user: made here, because making it for all users takes long."""
        self._permissions: Permissions | None = None

    @property
    def permissions(self) -> Permissions:
        """Made when they are asked for: most users of a large table do not call at the same time."""
        if self._permissions is None:
            self._permissions = Permissions(self.acl)
        return self._permissions


class AccessTable:
    """`user` and `permissions` cost one look-up each."""

    def __init__(self) -> None:
        self._users: dict[str, _Known] = {}
        self._entry_count = 0

    def __len__(self) -> int:
        return len(self._users)

    # --- the file ---------------------------------------------------------------------------------------------------

    def load(self, users: Mapping[str, object]) -> None:
        """Take the place of what is here. Raises ValueError, which says what is wrong with which user and changes nothing."""
        loaded = AccessTable()
        for name, saved in users.items():
            try:
                known = _loaded(name, msgspec.convert(saved, _SavedUser))
                loaded._create(known.user)
                loaded._put(known)
            except msgspec.ValidationError as error:
                raise ValueError(f"user {name!r}: {_without_values(str(error))}") from None
            except (ValueError, Denied) as error:
                raise ValueError(f"user {name!r}: {error}") from error
        self._users, self._entry_count = loaded._users, loaded._entry_count

    def frozen(self) -> Callable[[], Mapping[str, object]]:
        """What makes the content of the file as the table is now, on any thread: `load` takes it back. 5 us for a hundred users."""
        known = list(self._users.items())
        return lambda: {name: one.text for name, one in known}

    def text(self, name: str) -> bytes | None:
        """What the file says of one user; None where there is none."""
        known = self._users.get(name)
        return None if known is None else bytes(known.text).strip()

    def take(self, name: str, text: bytes | None) -> None:
        """What a file says of one user takes the place of what is here; None: there is none. Raises ValueError, which says what is
        wrong and changes nothing."""
        before = self._users.pop(name, None)
        if before is not None:
            self._entry_count -= _count(before.acl)
        if text is None:
            return
        try:
            known = _loaded(name, msgspec.json.decode(text, type=_SavedUser))
            self._create(known.user)
            self._put(known)
        except (ValueError, Denied) as error:
            self._users.pop(name, None)
            if before is not None:
                self._users[name] = before
                self._entry_count += _count(before.acl)
            raise ValueError(f"user {name!r}: {_without_values(str(error))}") from None

    # --- asking -----------------------------------------------------------------------------------------------------

    def user(self, name: str) -> User | None:
        known = self._users.get(name)
        return None if known is None else known.user

    def users(self, name_part: str = "") -> list[User]:
        """Those whose names contain a text, by name."""
        return [known.user for name, known in sorted(self._users.items()) if name_part in name]

    def permissions(self, name: str) -> Permissions | None:
        """The policies of a user made ready for asking; None where there is no such user."""
        known = self._users.get(name)
        return None if known is None else known.permissions

    def acl(self, name: str) -> Acl | None:
        """The policies of a user; None where it has none. `Denied` where there is no such user."""
        acl = self._of(name, "The subject is not exist.").acl
        return acl if _count(acl) else None

    def acls(self, subject_part: str = "", resource_part: str = "") -> list[Acl]:
        """Policies of the users whose subjects (`User:name`) contain a text, by name: of these the entries about resources whose text
        contains another one. Users without any are left out."""
        found = []
        for name, known in sorted(self._users.items()):
            if subject_part in subject_text(name):
                acl = Acl(name, _about(known.acl.custom, resource_part), _about(known.acl.default, resource_part))
                if _count(acl):
                    found.append(acl)
        return found

    # --- users ------------------------------------------------------------------------------------------------------

    def create_user(self, user: User, by: User | None) -> None:
        """`by` calls; None: somebody unknown."""
        if user.type is UserType.SUPER and not _is_super(by):
            raise Denied(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        self._create(user)

    def create_at_start(self, user: User, acl: Acl | None = None) -> bool:
        """A user that the settings name, with policies; False, and nothing is changed, where one of that name exists."""
        if user.name in self._users:
            return False
        self._create(user)
        if acl is not None:
            self._put(_Known(user, acl))
        return True

    def update_user(
        self,
        name: str,
        by: User | None,
        *,
        password: str = "",
        type: UserType | None = None,
        status: UserStatus | None = None,
    ) -> None:
        """Change what is given; a blank password stays what it was. `by` calls; None: somebody unknown."""
        if type is UserType.SUPER and not _is_super(by):
            raise Denied(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        known = self._of(name, "The user is not exist")
        old = known.user
        if old.type is UserType.SUPER and not _is_super(by):
            raise Denied(ResponseCode.NO_PERMISSION, "The super user can only be update by super user")
        new = User(name, password if password.strip() else old.password, type or old.type, status or old.status)
        _check_user(new)
        self._users[name] = _Known(new, known.acl)

    def delete_user(self, name: str, by: User | None) -> bool:
        """Forget a user and its policies; False where there is none. `by` calls; None: somebody unknown."""
        if not name.strip():
            raise Denied(ResponseCode.NO_PERMISSION, "username can not be blank")
        known = self._users.get(name)
        if known is None:
            return False
        if known.user.type is UserType.SUPER and not _is_super(by):
            raise Denied(ResponseCode.NO_PERMISSION, "The super user can only be update by super user")
        del self._users[name]
        self._entry_count -= _count(known.acl)
        return True

    def _create(self, user: User) -> None:
        _check_user(user)
        if user.name in self._users:
            raise Denied(ResponseCode.NO_PERMISSION, "The user is existed")
        if len(self._users) >= USERS_MAX:
            raise Denied(
                ResponseCode.SYSTEM_ERROR, f"user {user.name!r} cannot be created: there are {USERS_MAX} already"
            )
        self._users[user.name] = _Known(user, Acl(user.name))

    # --- policies ---------------------------------------------------------------------------------------------------

    def merge_acl(self, acl: Acl, by: User | None) -> None:
        """Add entries to the policies of a user; one about a resource that has an entry in the same policy replaces it. RocketMQ does
        the same for creating and for updating. `by` calls; None: somebody unknown."""
        known = self._of(acl.user, f"The subject of {subject_text(acl.user)} is not exist.")
        _check_not_own(acl.user, by)
        if not _count(acl):
            raise Denied(ResponseCode.NO_PERMISSION, "The policies is empty.")
        merged = Acl(acl.user, _merged(known.acl.custom, acl.custom), _merged(known.acl.default, acl.default))
        self._put(_Known(known.user, merged))

    def delete_acl(
        self,
        name: str,
        by: User | None,
        policy: PolicyType = PolicyType.CUSTOM,
        resource: ResourcePattern | None = None,
    ) -> None:
        """Forget the entry about a resource in a policy, which may be missing. Without `resource` both policies go, whatever `policy`
        says, as in RocketMQ. `by` calls; None: somebody unknown."""
        known = self._of(name, "The subject is not exist.")
        _check_not_own(name, by)
        if not _count(known.acl):
            raise Denied(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        acl = Acl(name)
        if resource is not None:
            acl = known.acl
            if policy is PolicyType.CUSTOM:
                acl = acl._replace(custom=_without(acl.custom, resource))
            else:
                acl = acl._replace(default=_without(acl.default, resource))
        self._put(_Known(known.user, acl))

    def _put(self, known: _Known) -> None:
        """Replace what is known about a user. `Denied` where that would be too much."""
        count, name = _count(known.acl), known.user.name
        entry_count = self._entry_count - _count(self._users[name].acl) + count
        if count > POLICY_ENTRIES_PER_USER_MAX or entry_count > POLICY_ENTRIES_MAX:
            raise Denied(
                ResponseCode.SYSTEM_ERROR,
                f"policies of user {name!r} cannot be kept: at most {POLICY_ENTRIES_PER_USER_MAX} entries of one user and "
                f"{POLICY_ENTRIES_MAX} of all are; an entry about names with a common beginning (Topic:orders*) replaces many",
            )
        for entry in (*known.acl.custom, *known.acl.default):
            _check_entry(entry)
        self._users[name] = known
        self._entry_count = entry_count

    def _of(self, name: str, otherwise: str) -> _Known:
        try:
            return self._users[name]
        except KeyError:
            raise Denied(ResponseCode.NO_PERMISSION, otherwise) from None


def _is_super(by: User | None) -> bool:
    return by is not None and by.type is UserType.SUPER


def _check_not_own(name: str, by: User | None) -> None:
    """RocketMQ lets everybody who may change policies extend their own."""
    if by is not None and by.name == name and by.type is not UserType.SUPER:
        raise Denied(
            ResponseCode.NO_PERMISSION, f"{subject_text(name)} cannot change policies of its own: a super user can"
        )


def _check_user(user: User) -> None:
    name, password = user.name, user.password
    if not name.strip():
        raise Denied(ResponseCode.NO_PERMISSION, "username can not be blank")
    if len(name) > USER_NAME_CHARS_MAX or not name.isprintable():
        raise Denied(
            ResponseCode.INVALID_PARAMETER,
            f"a user's name has at most {USER_NAME_CHARS_MAX} characters, all of which can be printed",
        )
    if not password.strip():
        raise Denied(ResponseCode.NO_PERMISSION, "password can not be blank")
    if len(password) > PASSWORD_CHARS_MAX:
        raise Denied(ResponseCode.INVALID_PARAMETER, f"a password has at most {PASSWORD_CHARS_MAX} characters")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise Denied(ResponseCode.INVALID_PARAMETER, "a password is text that UTF-8 can hold") from None


def _check_entry(entry: Entry) -> None:
    name = entry.resource.name
    if len(name) > RESOURCE_NAME_CHARS_MAX or not name.isprintable():
        raise Denied(
            ResponseCode.INVALID_PARAMETER,
            f"a resource's name has at most {RESOURCE_NAME_CHARS_MAX} characters, all of which can be printed",
        )


def _count(acl: Acl) -> int:
    return len(acl.custom) + len(acl.default)


def _merged(old: Iterable[Entry], new: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries of both, the first of each resource deciding its place and the last what it says."""
    by_resource = {entry.resource: entry for entry in old}
    by_resource.update((entry.resource, entry) for entry in new)
    return tuple(by_resource.values())


def _without(entries: Iterable[Entry], resource: ResourcePattern) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.resource != resource)


def _about(entries: Iterable[Entry], resource_part: str) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if resource_part in entry.resource.text)


# --- what the file says of a user ------------------------------------------------------------------------------------


def _without_values(error: str) -> str:
    """What msgspec says, without a word that it quotes: it may be a password in the wrong place."""
    problem, at, place = error.rpartition(" - at ")
    return f"Invalid enum value{at}{place}" if problem.startswith("Invalid enum value") else error


def _saved_text(user: User, acl: Acl) -> bytes:
    custom, default = list(map(_saved_entry, acl.custom)), list(map(_saved_entry, acl.default))
    return msgspec.json.encode(_SavedUser(user.password, user.type, user.status, custom, default))


def _saved_entry(entry: Entry) -> _SavedEntry:
    info = entry_info(entry)
    return _SavedEntry(info.resource, info.actions, info.source_ips, info.decision)


def _loaded(name: str, saved: _SavedUser) -> _Known:
    """ValueError where an entry says something that does not exist."""
    user = User(name, saved.password, saved.user_type, saved.user_status)
    return _Known(user, Acl(name, tuple(map(_loaded_entry, saved.custom)), tuple(map(_loaded_entry, saved.default))))


def _loaded_entry(saved: _SavedEntry) -> Entry:
    return read_entry(saved.resource or "", saved.actions, saved.source_ips or (), saved.decision)
