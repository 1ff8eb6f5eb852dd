"""The gate of RocketMQ 4: white lists, then a signature, then the permissions of the account.

    global white list          passes, whoever it is
    no access key              refused
    unknown access key         refused
    the account's white list   passes, whatever the signature
    wrong signature            refused
    changes of topics, groups, settings and accounts    for accounts with admin: true
    each topic and group       the account's permission for its name, else its default

Rules of this file
1. The permission that a request needs follows from its row: to publish PUB, to consume or to change what belongs to consuming SUB. A row
   that only looks at something needs a right signature; one that creates, changes or deletes needs an admin.
2. Failures are answered as RocketMQ 4 does: SYSTEM_ERROR with the name of its exception and its text.
3. An admin without any permission of its own passes everything; one that has some is asked like everybody.
4. After too many failures of an address the answer to each further one waits. White lists come first: who stands in one cannot fail.
5. A signature that is right is asked for in each request: what an earlier one on the same connection proved counts for nothing.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Final, NamedTuple, NoReturn

from orbitmq.access.authentication import Authentication, Unproven
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, Denied, LedTo
from orbitmq.access.needed import Needed, needs_of
from orbitmq.access.plain.accounts import PlainAccount, PlainPermission
from orbitmq.access.plain.addresses import Fields, address_fields
from orbitmq.access.plain.table import PlainTable
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, Action, RequestRow, ResourceType
from orbitmq.protocol.signing import ACCESS_KEY_FIELD

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""What RocketMQ's remark begins with."""

PLACE: Final = "place in white lists"
"""The attachment of a peer that says whether its address stands in the global white list."""

NOT_ALLOWED: Final = "not_allowed"
"""Label of a metric: the caller is known and may not do it."""

_PERMISSION_OF: Final = {Action.PUB: PlainPermission.PUB, Action.SUB: PlainPermission.SUB}
_CHANGES: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


class _AccountRule(NamedTuple):
    """What is asked about a code. `row` has only the needs that PUB or SUB answers."""

    for_admins: bool
    row: RequestRow


class _Place(NamedTuple):
    """Where a connection comes from, by the white list of one state of the files."""

    table: PlainTable
    fields: Fields
    is_let_in: bool


class PlainGate:
    def __init__(self, table: Callable[[], PlainTable], cluster: str, attempts: FailedAttempts) -> None:
        """`table` gives the accounts as they are now; `cluster` is the server's own."""
        self._table = table
        self._cluster = cluster
        self._attempts = attempts
        self._authentication = Authentication(lambda name: self._table().users.get(name))
        self._rules = {int(row.code): _rule(row) for row in REQUESTS.values() if row.signed}
        self.denials: Counter[str] = Counter()
        """Requests that were not let through, by the reason: values of `Unproven` and `NOT_ALLOWED`."""

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        """Raises `Denied`, and what `led_to` raises."""
        attachments = peer.attachments
        attachments.pop(CALLER, None)
        table = self._table()
        place = attachments.get(PLACE)
        if not isinstance(place, _Place) or place.table is not table:
            fields = address_fields(peer.address[0])
            place = attachments[PLACE] = _Place(table, fields, table.lets_in(fields))
        if place.is_let_in:
            return
        name = command.fields.get(ACCESS_KEY_FIELD)
        if name is None:
            self._refuse(Unproven.NO_NAME, "No accessKey is configured", command, peer)
        account = table.accounts.get(name)
        if account is None:
            self._refuse(Unproven.UNKNOWN_USER, f"No acl config for {name}", command, peer)
        if account.white_addresses.matches(place.fields):
            return
        user = self._authentication.caller(command)
        if isinstance(user, Unproven):
            self._refuse(user, f"Check signature failed for accessKey={name}", command, peer, name)
        attachments[CALLER] = user
        self._check(command, account, led_to)

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        """See `Gate.may_publish`. Whoever a white list let in may."""
        if not user:
            return True
        account = self._table().accounts.get(user)
        if account is None:
            return False
        needed = Needed(ResourceType.TOPIC, topic, frozenset({Action.PUB}))
        return _passes_all(account) or bool(_owned(account, needed) & PlainPermission.PUB)

    def _check(self, command: Command, account: PlainAccount, led_to: LedTo | None) -> None:
        """Raises `Denied` for what the account may not do."""
        rule = self._rules.get(command.code)
        if rule is None:
            self._deny(NOT_ALLOWED, f"request code={command.code} has no row that says who may send it")
        if rule.for_admins and not account.admin:
            text = f"Need admin permission for request code={command.code}, but accessKey={account.access_key} is not"
            self._deny(NOT_ALLOWED, text)
        if not rule.row.needs or _passes_all(account):
            return
        try:
            needs = needs_of(command, rule.row, self._cluster, led_to)
        except Denied as denied:
            self._deny(NOT_ALLOWED, denied.remark)
        for needed in needs:
            if needed.name == TRACE_TOPIC and Action.PUB in needed.actions:
                continue  # who may call may leave traces
            owned = _owned(account, needed)
            if not any(owned & _PERMISSION_OF[action] for action in needed.actions if action in _PERMISSION_OF):
                self._deny(
                    NOT_ALLOWED, f"No default permission for {needed.resource.value.lower()}:{needed.name or '*'}"
                )

    def _refuse(self, why: Unproven, text: str, command: Command, peer: Peer, known_name: str = "") -> NoReturn:
        """Deny a request whose caller is not known; the more there were from an address, the later the answer."""
        wait_ms = self._attempts.refused(command.code, peer.address[0], why.value, known_name)
        self._deny(why.value, text, wait_ms)

    def _deny(self, reason: str, text: str, wait_ms: int = 0) -> NoReturn:
        self.denials[reason] += 1
        raise Denied(ResponseCode.SYSTEM_ERROR, EXCEPTION + text, wait_ms=wait_ms)


def _passes_all(account: PlainAccount) -> bool:
    return account.admin and not account.topics and not account.groups


def _owned(account: PlainAccount, needed: Needed) -> PlainPermission:
    """What the account may do with a topic or a group, or with all of them."""
    is_group = needed.resource is ResourceType.GROUP
    named, default = (account.groups, account.default_group) if is_group else (account.topics, account.default_topic)
    if needed.name is not None:
        return named.get(needed.name, default)
    return reduce(and_, named.values(), default)


def _rule(row: RequestRow) -> _AccountRule:
    asked = tuple(need for need in row.needs if not need.actions.isdisjoint(_PERMISSION_OF))
    for_admins = any(need not in asked and not need.actions.isdisjoint(_CHANGES) for need in row.needs)
    return _AccountRule(for_admins, row._replace(needs=asked))
