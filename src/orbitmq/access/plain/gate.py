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

6. A gRPC call goes the same way; its failures are told without the name of a Java exception.

(RocketMQ broker: ACL in 4.x; RocketMQ gRPC, signature scheme.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import reduce
from operator import and_
from typing import Final, NamedTuple, NoReturn

from orbitmq.access.authentication import Authentication, Unproven
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, CallNeeds, Denied, LedTo
from orbitmq.access.needed import Needed, judged_as
from orbitmq.access.plain.accounts import PlainAccount, PlainPermission
from orbitmq.access.plain.addresses import Fields, address_fields
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.request_needs import needs_of, needs_of_call
from orbitmq.protocol.caller_connection import CallerConnection
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.signature import read_authorization
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, Action, RequestRow, ResourceType
from orbitmq.protocol.signing import ACCESS_KEY_FIELD

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""What RocketMQ's remark begins with."""

PLACE: Final = "place in white lists"
"""The attachment of a connection that says whether its address stands in the global white list."""

NOT_ALLOWED: Final = "not_allowed"
"""Label of a metric: the caller is known and may not do it."""

_NO_KEY: Final = "No accessKey is configured"

_PERMISSION_OF: Final = {Action.PUB: PlainPermission.PUB, Action.SUB: PlainPermission.SUB}
_PUB: Final = frozenset({Action.PUB})
_SUB: Final = frozenset({Action.SUB})
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
        """Requests and calls that were not let through, by the reason: values of `Unproven` and `NOT_ALLOWED`."""

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        """Raises `Denied`, and what `led_to` raises."""
        attachments = peer.attachments
        attachments.pop(CALLER, None)
        table, address = self._table(), peer.address[0]
        fields = _asked_from(peer, table)
        if fields is None:
            return
        name = command.fields.get(ACCESS_KEY_FIELD)
        if name is None:
            self._refuse(Unproven.NO_NAME, _NO_KEY, command.code, address)
        account = self._account(table, name, command.code, address)
        if account.white_addresses.matches(fields):
            return
        user = self._authentication.caller(command)
        if isinstance(user, Unproven):
            self._refuse_signature(user, account, command.code, address)
        attachments[CALLER] = user
        self._check(command, account, led_to)

    def admit_call(self, call: OpenCall, needs: CallNeeds) -> str:
        """See `Gate.admit_call`. Whoever a white list lets in is nobody."""
        rpc, table, address = call.call.row.rpc, self._table(), call.address[0]
        fields = _asked_from(call.connection, table)
        if fields is None:
            return ""
        signature = read_authorization(call.call.authorization)
        if signature is None:
            self._refuse(Unproven.NO_NAME, _NO_KEY, rpc, address)
        account = self._account(table, signature.access_key, rpc, address)
        if account.white_addresses.matches(fields):
            return ""
        user = self._authentication.caller_of_call(signature, call.call.signed_text)
        if isinstance(user, Unproven):
            self._refuse_signature(user, account, rpc, address)
        if not _passes_all(account):
            try:
                needed = needs_of_call(rpc, needs())
            except Denied as denied:
                self._deny(rpc, NOT_ALLOWED, denied.remark)
            self._check_needs(rpc, account, needed)
        return user.name

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        """See `Gate.may_publish`. Whoever a white list let in may."""
        return self._may(user, Needed(ResourceType.TOPIC, topic, _PUB))

    def may_consume(self, user: str, ip: str, group: str, topic: str | None) -> bool:
        """See `Gate.may_consume`. Whoever a white list let in may."""
        return self._may(
            user, Needed(ResourceType.GROUP, group, _SUB), judged_as(Needed(ResourceType.TOPIC, topic, _SUB))
        )

    def _may(self, user: str, *needs: Needed) -> bool:
        if not user:
            return True
        account = self._table().accounts.get(user)
        return account is not None and (_passes_all(account) or all(_owns(account, needed) for needed in needs))

    def _check(self, command: Command, account: PlainAccount, led_to: LedTo | None) -> None:
        """Raises `Denied` for what the account may not do."""
        rule = self._rules.get(command.code)
        if rule is None:
            self._deny(command.code, NOT_ALLOWED, f"request code={command.code} has no row that says who may send it")
        if rule.for_admins and not account.admin:
            text = f"Need admin permission for request code={command.code}, but accessKey={account.access_key} is not"
            self._deny(command.code, NOT_ALLOWED, text)
        if not rule.row.needs or _passes_all(account):
            return
        try:
            needs = needs_of(command, rule.row, self._cluster, led_to)
        except Denied as denied:
            self._deny(command.code, NOT_ALLOWED, denied.remark)
        self._check_needs(command.code, account, needs)

    # What follows is the same for a request and for a call: `request` is the code of one, or the RPC of the other.

    def _check_needs(self, request: int | str, account: PlainAccount, needs: Iterable[Needed]) -> None:
        """Raises `Denied` for what the account may not do."""
        for needed in needs:
            if needed.name == TRACE_TOPIC and Action.PUB in needed.actions:
                continue  # who may call may leave traces
            if not _owns(account, needed):
                text = f"No default permission for {needed.resource.value.lower()}:{needed.name or '*'}"
                self._deny(request, NOT_ALLOWED, text)

    def _account(self, table: PlainTable, name: str, request: int | str, address: str) -> PlainAccount:
        """The account of that name. Raises `Denied`."""
        account = table.accounts.get(name)
        if account is None:
            self._refuse(Unproven.UNKNOWN_USER, f"No acl config for {name}", request, address)
        return account

    def _refuse_signature(self, why: Unproven, account: PlainAccount, request: int | str, address: str) -> NoReturn:
        name = account.access_key
        self._refuse(why, f"Check signature failed for accessKey={name}", request, address, name)

    def _refuse(self, why: Unproven, text: str, request: int | str, address: str, known_name: str = "") -> NoReturn:
        """Deny what comes from somebody who is not known; the more there was from an address, the later the answer."""
        wait_ms = self._attempts.refused(request, address, why.value, known_name)
        self._deny(request, why.value, text, wait_ms)

    def _deny(self, request: int | str, reason: str, text: str, wait_ms: int = 0) -> NoReturn:
        self.denials[reason] += 1
        beginning = "" if isinstance(request, str) else EXCEPTION
        raise Denied(ResponseCode.SYSTEM_ERROR, beginning + text, wait_ms=wait_ms)


def _asked_from(connection: CallerConnection, table: PlainTable) -> Fields | None:
    """The address of a connection whose requests are signed; None where the global white list has it."""
    place = connection.attachments.get(PLACE)
    if not isinstance(place, _Place) or place.table is not table:
        fields = address_fields(connection.address[0])
        place = connection.attachments[PLACE] = _Place(table, fields, table.lets_in(fields))
    return None if place.is_let_in else place.fields


def _passes_all(account: PlainAccount) -> bool:
    return account.admin and not account.topics and not account.groups


def _owned(account: PlainAccount, needed: Needed) -> PlainPermission:
    """What the account may do with a topic or a group, or with all of them."""
    is_group = needed.resource is ResourceType.GROUP
    named, default = (account.groups, account.default_group) if is_group else (account.topics, account.default_topic)
    if needed.name is not None:
        return named.get(needed.name, default)
    return reduce(and_, named.values(), default)


def _owns(account: PlainAccount, needed: Needed) -> bool:
    """Whether one of the permissions that answer the need is the account's."""
    owned = _owned(account, needed)
    return any(owned & _PERMISSION_OF[action] for action in needed.actions if action in _PERMISSION_OF)


def _rule(row: RequestRow) -> _AccountRule:
    asked = tuple(need for need in row.needs if not need.actions.isdisjoint(_PERMISSION_OF))
    for_admins = any(need not in asked and not need.actions.isdisjoint(_CHANGES) for need in row.needs)
    return _AccountRule(for_admins, row._replace(needs=asked))
