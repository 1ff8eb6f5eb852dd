"""The name server: requests in, answers out, over the route registry and the key-value table.

It has the shape every role of a process has: `handle`, `peer_closed`, `end_turn`, and deadlines instead of timers.

Rules of this file
1. Liveness is measured with the monotonic clock: a stepped wall clock expires nobody.
2. An expected failure is an answer with the protocol's code; anything else is raised and becomes SYSTEM_ERROR in the
   listener. Every code without a handler is answered "not supported".
3. A change of the key-value table is answered after it is durable, at the end of the turn; all changes of a turn share
   one file write.
4. Encoded route answers are kept until any route or order configuration changes: clients ask every 30 s each, routes
   change rarely.
5. Where there is a gate, nothing is changed that it has not let through. Whoever can connect may ask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from orbitmq.access.audit import About, audited, tell_denied
from orbitmq.access.gate import Denied, Gate
from orbitmq.access.late_answers import LateAnswers
from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import ConfigurationError, ProtectedKeyError, ProtocolError
from orbitmq.limits.nameserver import MASTER_RETURNS_MS, NAMESERVER_ROUTE_CACHE_BYTES_MAX, TWO_MASTERS_TOLD_MAX
from orbitmq.nameserver import lookup
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.intake import queues_of, read_registration, version_of
from orbitmq.nameserver.kv import ORDER_TOPIC_CONFIG, KvFile, KvTable
from orbitmq.nameserver.routes import MASTER_ID, BrokerKey, LiveBroker, MinimumChange, Registration, RouteTable
from orbitmq.nameserver.runtime_config import KeptChanges, RuntimeConfig
from orbitmq.protocol.remoting.bodies import DataVersion, JsonBody, KVTable, TopicList, TopicRouteData
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, Action, RequestServer, not_supported
from orbitmq.protocol.remoting.setting_changes import asked_keys
from orbitmq.protocol.remoting.tally import Tally
from orbitmq.units import NS_PER_MS

_log = logging.getLogger(__name__)

EXPIRY: Final = "name server: expired brokers"
"""Name of the one deadline a name server arms."""

CHANGES: Final = frozenset(
    row.code
    for row in REQUESTS.values()
    if RequestServer.NAME_SERVER in row.served_by
    and any(need.actions & {Action.CREATE, Action.UPDATE, Action.DELETE} for need in row.needs)
) | {RequestCode.QUERY_DATA_VERSION}
"""Codes of the requests that change a name server. The last one keeps a broker alive."""

_BROKERS = "nameserver.brokers"

_Answer = Callable[["NameServer", Command, Peer], Command | None]


class NameServer:
    """One name server.

    `notify(address, command)` sends a oneway request to a broker's own port. `kept` are changes by request of earlier runs; `config` has
    them already. Without a `gate` whoever can connect may change everything.
    """

    def __init__(
        self,
        config: NameServerConfig,
        clock: Clock,
        deadlines: Deadlines,
        kv_file: KvFile | None = None,
        *,
        notify: Callable[[str, Command], None] | None = None,
        kept: KeptChanges | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.gate: Final = gate
        self._late_answers = LateAnswers(deadlines, clock)
        self._runtime: Final = RuntimeConfig(config, kept)
        self.routes = RouteTable()
        self.kv = KvTable(kv_file)
        self.tally = Tally()
        self.tally.serve(_HANDLERS)
        self._handlers = {
            code: audited(code, partial(handler, self), self._about) for code, handler in _HANDLERS.items()
        }
        self._clock = clock
        self._deadlines = deadlines
        self._notify = notify
        self._started_ns = clock.monotonic_ns()
        self._unsaved: list[tuple[Peer, Command]] = []
        self._cache: dict[str, bytes] = {}
        self._displaced: dict[tuple[str, ...], tuple[str, int]] = {}
        """Group and addresses of two masters of it -> the one whose place the other one took, and when; no address once that was told."""
        self._cache_bytes = 0
        self._cache_state = (-1, -1, False, False)
        deadlines.define(EXPIRY, self._expire)

    @property
    def config(self) -> NameServerConfig:
        """The present settings."""
        return self._runtime.config

    # --- the shape of a role --------------------------------------------------------------------------------------

    def handle(self, request: Command, peer: Peer) -> Command | None:
        """The answer to `request`; None when it comes at the end of the turn."""
        answer = self._handlers.get(request.code)
        if answer is None:
            self.tally.unsupported += 1
            remark = not_supported(request.code, RequestServer.NAME_SERVER)
            return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        self.tally.requests[request.code] += 1
        try:
            if self.gate is not None and request.code in CHANGES:
                self.gate.admit(request, peer, None)
            answered = answer(request, peer)
        except Denied as denied:
            answered = self._denied(request, peer, denied)
        except ProtocolError as error:
            answered = response(request, ResponseCode.SYSTEM_ERROR, str(error), _empty_fields(request.code))
        if answered is not None and answered.code:
            self.tally.failed(request.code, answered.code)
        return answered

    def _denied(self, request: Command, peer: Peer, denied: Denied) -> Command | None:
        """The answer; None where it comes later."""
        tell_denied(request, peer, denied)
        answer = response(request, denied.code, denied.remark, _empty_fields(request.code))
        if not denied.wait_ms:
            return answer
        self.tally.failed(request.code, denied.code)
        self._late_answers.send(peer, None if request.is_oneway else partial(peer.send, answer), denied.wait_ms)
        return None

    def peer_closed(self, peer: Peer) -> None:
        """Brokers that registered over this connection, and not over a newer one, are gone."""
        for key in list(_brokers_of(peer)):
            live = self.routes.live.get(key)
            if live is not None and live.owner is peer:
                _log.info("broker %s at %s left: its connection closed", live.group, key.address)
                self._remove(live)

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        """As `handle`: nothing here is worth refusing, an answer costs less than its repetition."""
        return self.handle(request, peer)

    def end_turn(self) -> None:
        """Make the turn's key-value changes durable and answer them."""
        if not self._unsaved:
            return
        waiting, self._unsaved = self._unsaved, []
        code, remark = ResponseCode.SUCCESS, None
        try:
            self.kv.commit()
        except OSError as error:
            _log.error("the key-value table cannot be written, its changes are taken back: %s", error)
            code, remark = ResponseCode.SYSTEM_ERROR, f"the key-value table cannot be written: {error}"
        for peer, command in waiting:
            if not command.is_oneway:
                peer.send(response(command, code, remark))

    def _about(self, command: Command, peer: Peer) -> About:
        """What a request may change, for the audit log."""
        match command.code:
            case RequestCode.UPDATE_NAMESRV_CONFIG:
                return About(lambda: self.config.texts(), asked_keys(command.body))
            case RequestCode.PUT_KV_CONFIG | RequestCode.DELETE_KV_CONFIG:
                namespace, key = command.text("namespace"), command.text("key")
                return About(lambda: {} if (value := self.kv.get(namespace, key)) is None else {"value": value})
            case _:
                return About()

    # --- life of brokers ------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        for live in self.routes.expired(self._clock.monotonic_ns()):
            _log.warning(
                "broker %s at %s gave no sign of life for %d ms and is removed",
                live.group,
                live.key.address,
                live.timeout_ms,
            )
            owner = live.owner
            self._remove(live)
            owner.close("the broker registered over it expired")
        next_ns = self.routes.next_deadline_ns()
        if next_ns is not None:
            self._arm_expiry(next_ns)

    def _arm_expiry(self, deadline_ns: int) -> None:
        """Look again just after `deadline_ns`, but not sooner than the configured interval."""
        soonest_ns = self._clock.monotonic_ns() + self.config.scan_not_active_broker_interval * NS_PER_MS
        self._deadlines.arm(EXPIRY, max(deadline_ns + 1, soonest_ns))

    def _remove(self, live: LiveBroker) -> None:
        _brokers_of(live.owner).discard(live.key)
        self._tell(self.routes.remove(live.key, live.group))

    def _tell(self, change: MinimumChange | None) -> None:
        """Tell the members of a group its new smallest id, when that is wanted."""
        if change is None or self._notify is None or not self.config.notify_min_broker_id_changed:
            return
        fields = {"minBrokerId": str(change.broker_id), "minBrokerAddr": change.address}
        if change.offline_address is not None:
            fields["offlineBrokerAddr"] = change.offline_address
        if change.ha_address:
            fields["haBrokerAddr"] = change.ha_address
        for address in change.tell:
            self._notify(address, request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields, oneway=True))

    def _look_for_two_masters(self, registration: Registration) -> None:
        """Say it once of two brokers that both live and take each other's place as the master of one group: routes name whoever registered
        last. One that takes the place of another is its successor."""
        group = self.routes.groups.get(registration.group)
        known = None if group is None or registration.broker_id != MASTER_ID else group.addresses.get(MASTER_ID)
        if (
            known is None
            or known == registration.address
            or BrokerKey(registration.cluster, known) not in self.routes.live
        ):
            return
        both, now_ns = (registration.group, *sorted((known, registration.address))), self._clock.monotonic_ns()
        displaced, at_ns = self._displaced.get(both, (known, now_ns))
        if not displaced:
            return
        returns = displaced == registration.address and now_ns - at_ns <= MASTER_RETURNS_MS * NS_PER_MS
        if both not in self._displaced and len(self._displaced) >= TWO_MASTERS_TOLD_MAX:
            self._displaced.clear()
        self._displaced[both] = ("", now_ns) if returns else (known, now_ns)
        if returns:
            _log.warning(
                "two brokers are masters of %s: %s and %s; clients reach whichever registered last. Stop one of them, or give it another "
                "brokerName",
                *both,
            )

    def _register_broker(self, command: Command, peer: Peer) -> Command:
        registration = read_registration(command)
        new = registration.group not in self.routes.groups
        before = self.routes.live.get(BrokerKey(registration.cluster, registration.address))
        self._look_for_two_masters(registration)
        result = self.routes.register(
            registration,
            peer,
            self._clock.monotonic_ns(),
            delete_missing=self.config.delete_topic_with_broker_registration,
        )
        fields: dict[str, str] = {}
        if result.ignored:
            return response(command, ResponseCode.SUCCESS, None, fields)
        live = self.routes.live[BrokerKey(registration.cluster, registration.address)]
        if before is not None and before.owner is not peer:
            _brokers_of(before.owner).discard(live.key)
        _brokers_of(peer).add(live.key)
        if new:
            _log.info("broker %s id %d registered from %s", live.group, live.broker_id, live.key.address)
        self._arm_expiry(live.deadline_ns)
        self._tell(result.change)
        if result.master_address is not None:
            fields["masterAddr"] = result.master_address
            fields["haServerAddr"] = result.master_ha_address or ""
        body = b""
        if self.config.return_order_topic_config_to_broker:
            orders = self.kv.namespace(ORDER_TOPIC_CONFIG)
            body = b"" if orders is None else KVTable(orders).encode()
        return response(command, ResponseCode.SUCCESS, None, fields, body)

    def _unregister_broker(self, command: Command, peer: Peer) -> Command:
        key = BrokerKey(command.text("clusterName"), command.text("brokerAddr"))
        group = command.text("brokerName")
        live = self.routes.live.get(key)
        if live is not None and live.group == group:
            _log.info("broker %s at %s left: it said so", live.group, key.address)
            self._remove(live)
        else:
            self._tell(self.routes.remove(key, group))
        return response(command, ResponseCode.SUCCESS)

    def _query_data_version(self, command: Command, peer: Peer) -> Command:
        key = BrokerKey(command.text("clusterName"), command.text("brokerAddr"))
        known = self.routes.version_of(key)
        changed = known is None or known != version_of(DataVersion.decode(command.body))
        if not changed:
            self.routes.touch(key, self._clock.monotonic_ns())
        body = b""
        if known is not None:
            body = DataVersion(known.counter, known.state_version, known.timestamp).encode()
        fields = {"changed": "true" if changed else "false"}
        return response(command, ResponseCode.SUCCESS, None, fields, body)

    def _heartbeat(self, command: Command, peer: Peer) -> Command:
        key = BrokerKey(command.text("clusterName"), command.text("brokerAddr"))
        self.routes.touch(key, self._clock.monotonic_ns())
        return response(command, ResponseCode.SUCCESS)

    def _member_group(self, command: Command, peer: Peer) -> Command:
        cluster, name = command.text("clusterName"), command.text("brokerName")
        return _body(command, lookup.member_body(self.routes, cluster, name))

    # --- routes ---------------------------------------------------------------------------------------------------

    def _route(self, command: Command, peer: Peer) -> Command:
        config = self.config
        if config.need_wait_for_service:
            served_ns = self._started_ns + config.wait_seconds_for_service * 1_000 * NS_PER_MS
            if self._clock.monotonic_ns() < served_ns:
                remark = "the name server waits for the brokers to register again"
                return response(command, ResponseCode.SYSTEM_ERROR, remark)
        topic = command.text("topic")
        zone = command.text("__ZONE_NAME") if command.boolean("__ZONE_MODE") else ""
        body = self._route_body(topic, zone)
        if body is None:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, f"no broker here carries the topic {topic}")
        return response(command, ResponseCode.SUCCESS, body=body)

    def _route_body(self, topic: str, zone: str) -> bytes | None:
        config = self.config
        state = (self.routes.changes, self.kv.changes, config.order_message_enable, config.support_acting_master)
        if state != self._cache_state or self._cache_bytes > NAMESERVER_ROUTE_CACHE_BYTES_MAX:
            self._cache = {}
            self._cache_bytes = 0
            self._cache_state = state
        body = None if zone else self._cache.get(topic)
        if body is not None:
            return body
        route = lookup.find_route(self.routes, topic)
        if route is None:
            return None
        if config.support_acting_master:
            lookup.present_acting_masters(route, topic)
        if zone:
            lookup.keep_zone(route, zone)
        orders = self.kv.get(ORDER_TOPIC_CONFIG, topic) if config.order_message_enable else None
        body = lookup.route_body(route, orders).encode()
        if not zone:
            self._cache[topic] = body
            self._cache_bytes += len(body)
        return body

    def _cluster(self, command: Command, peer: Peer) -> Command:
        return _body(command, lookup.cluster_body(self.routes))

    def _wipe_write_perm(self, command: Command, peer: Peer) -> Command:
        count = self.routes.set_write_perm(command.text("brokerName"), writable=False)
        return response(command, ResponseCode.SUCCESS, None, {"wipeTopicCount": str(count)})

    def _add_write_perm(self, command: Command, peer: Peer) -> Command:
        count = self.routes.set_write_perm(command.text("brokerName"), writable=True)
        return response(command, ResponseCode.SUCCESS, None, {"addTopicCount": str(count)})

    def _delete_topic(self, command: Command, peer: Peer) -> Command:
        self.routes.delete_topic(command.text("topic"), command.text("clusterName") or None)
        return response(command, ResponseCode.SUCCESS)

    def _register_topic(self, command: Command, peer: Peer) -> Command:
        topic = command.text("topic")
        if not topic:
            raise ProtocolError("the request names no topic")
        self.routes.merge_topic(topic, queues_of(TopicRouteData.decode(command.body)))
        return response(command, ResponseCode.SUCCESS)

    # --- topic lists ----------------------------------------------------------------------------------------------

    def _all_topics(self, command: Command, peer: Peer) -> Command:
        if not self.config.enable_all_topic_list:
            return response(command, ResponseCode.SYSTEM_ERROR, "listing all topics is disabled (enableAllTopicList)")
        return _body(command, TopicList(list(self.routes.topics)))

    def _cluster_topics(self, command: Command, peer: Peer) -> Command:
        return self._topic_list(command, self.routes.topics_of_cluster(command.text("cluster")))

    def _system_topics(self, command: Command, peer: Peer) -> Command:
        return _body(command, lookup.system_topics_body(self.routes))

    def _unit_topics(self, command: Command, peer: Peer) -> Command:
        return self._topic_list(command, lookup.unit_topics(self.routes))

    def _unit_subscriptions(self, command: Command, peer: Peer) -> Command:
        return self._topic_list(command, lookup.unit_subscription_topics(self.routes))

    def _unit_subscriptions_only(self, command: Command, peer: Peer) -> Command:
        return self._topic_list(command, lookup.unit_subscription_only_topics(self.routes))

    def _topic_list(self, command: Command, topics: list[str]) -> Command:
        if not self.config.enable_topic_list:
            return response(command, ResponseCode.SYSTEM_ERROR, "listing topics is disabled (enableTopicList)")
        return _body(command, TopicList(topics))

    # --- key-value table ------------------------------------------------------------------------------------------

    def _put_kv(self, command: Command, peer: Peer) -> Command | None:
        fields = command.fields
        missing = [name for name in ("namespace", "key", "value") if name not in fields]
        if missing:
            raise ProtocolError(f"the request has no {' and no '.join(missing)}")
        self.kv.put(fields["namespace"], fields["key"], fields["value"])
        self._unsaved.append((peer, command))
        return None

    def _get_kv(self, command: Command, peer: Peer) -> Command:
        namespace, key = command.text("namespace"), command.text("key")
        value = self.kv.get(namespace, key)
        if value is None:
            remark = f"namespace {namespace} has no key {key}"
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark, {})
        return response(command, ResponseCode.SUCCESS, None, {"value": value})

    def _delete_kv(self, command: Command, peer: Peer) -> Command | None:
        self.kv.delete(command.text("namespace"), command.text("key"))
        self._unsaved.append((peer, command))
        return None

    def _list_kv(self, command: Command, peer: Peer) -> Command:
        namespace = command.text("namespace")
        table = self.kv.namespace(namespace)
        if table is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {namespace}")
        return _body(command, KVTable(table))

    # --- configuration --------------------------------------------------------------------------------------------

    def _update_config(self, command: Command, peer: Peer) -> Command:
        try:
            without_effect = self._runtime.update(bytes(command.body))
        except ProtectedKeyError as error:
            return response(command, ResponseCode.NO_PERMISSION, str(error))
        except (ConfigurationError, OSError) as error:
            return response(command, ResponseCode.SYSTEM_ERROR, str(error))
        remark = None
        if without_effect:
            remark = f"these keys have no effect here: {', '.join(without_effect)}"
            _log.warning("configuration change from %s: %s", peer.address[0], remark)
        return response(command, ResponseCode.SUCCESS, remark)

    def _get_config(self, command: Command, peer: Peer) -> Command:
        return response(command, ResponseCode.SUCCESS, body=self._runtime.shown().encode())


def _body(command: Command, body: JsonBody) -> Command:
    return response(command, ResponseCode.SUCCESS, body=body.encode())


def _brokers_of(owner: Peer) -> set[BrokerKey]:
    """The brokers registered over a connection, kept with it."""
    brokers = owner.attachments.setdefault(_BROKERS, set())
    assert isinstance(brokers, set)
    return brokers


def _empty_fields(code: int) -> dict[str, str] | None:
    """Ext fields of an error answer: some answers have a header type, and their readers want the member."""
    return {} if code == RequestCode.REGISTER_BROKER else None


_HANDLERS: Final[dict[int, _Answer]] = {
    RequestCode.PUT_KV_CONFIG: NameServer._put_kv,
    RequestCode.GET_KV_CONFIG: NameServer._get_kv,
    RequestCode.DELETE_KV_CONFIG: NameServer._delete_kv,
    RequestCode.REGISTER_BROKER: NameServer._register_broker,
    RequestCode.UNREGISTER_BROKER: NameServer._unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: NameServer._route,
    RequestCode.GET_BROKER_CLUSTER_INFO: NameServer._cluster,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: NameServer._wipe_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: NameServer._all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: NameServer._delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: NameServer._register_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: NameServer._list_kv,
    RequestCode.GET_TOPICS_BY_CLUSTER: NameServer._cluster_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: NameServer._system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: NameServer._unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: NameServer._unit_subscriptions,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: NameServer._unit_subscriptions_only,
    RequestCode.UPDATE_NAMESRV_CONFIG: NameServer._update_config,
    RequestCode.GET_NAMESRV_CONFIG: NameServer._get_config,
    RequestCode.QUERY_DATA_VERSION: NameServer._query_data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: NameServer._add_write_perm,
    RequestCode.GET_BROKER_MEMBER_GROUP: NameServer._member_group,
    RequestCode.BROKER_HEARTBEAT: NameServer._heartbeat,
}

SERVED_CODES: Final = frozenset(_HANDLERS)
"""Request codes with a handler."""
