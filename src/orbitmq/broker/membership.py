"""Clients joining and leaving: heartbeats (34), unregistering (35), member lists (38), subscription checks (46), queue
locks (41, 42).

Rules of this file
1. A heartbeat makes what it needs: the group, where that is allowed, and the group's retry topic. A group that may not
   be made is passed over in silence, as the protocol wants it.
2. Version 2 heartbeats (a fingerprint that is not 0) may leave out subscriptions; those known here then stay.

Source: RocketMQ broker, heartbeats and order locks; remoting, membership.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.access.gate import caller_name
from orbitmq.broker.clients import HeartbeatSender
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.limits.broker import CLIENT_ID_CHARS_MAX
from orbitmq.limits.wire import GROUP_CHARS_MAX
from orbitmq.protocol.remoting.bodies import (
    CheckClientBody,
    ConsumerData,
    ConsumerIdList,
    ConsumeType,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

CLIENTS = "client expiry"
"""Name of the wake-up that lets silent clients go."""

LOCKS = "queue locks"
"""Name of what is recorded and has no file."""


class MembershipProcessor(Room):
    def __init__(self, core: BrokerCore) -> None:
        self._settings = core.settings
        self._topics = core.topics
        self._groups = core.groups
        self._clients = core.clients
        self._subscriptions = core.subscriptions
        self._locks = core.locks
        self._recording = core.make_saving((), LOCKS)
        self._clock = core.clock
        self._deadlines = core.deadlines
        core.deadlines.define(CLIENTS, self._expire)

    # --- as a room of the broker --------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.HEART_BEAT: self.heartbeat,
            code.UNREGISTER_CLIENT: self.unregister,
            code.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            code.CHECK_CLIENT_CONFIG: self.check_client,
            code.LOCK_BATCH_MQ: self.lock,
            code.UNLOCK_BATCH_MQ: self.unlock,
        }

    def arm(self, now_ns: int) -> None:
        self._deadlines.move(CLIENTS, self._clients.next_expiry_ns())

    def peer_closed(self, peer: Peer) -> None:
        self._clients.session_ended(peer)

    def facts(self) -> Mapping[str, object]:
        return {"orbitmqExpiredClients": self._clients.expired_count}

    def _expire(self) -> None:
        for session in self._clients.expire(self._clock.monotonic_ns()):
            session.close(f"no heartbeat for {self._settings.channel_expired_timeout_ms} ms")

    # --- requests -----------------------------------------------------------------------------------------------------

    def heartbeat(self, command: Command, peer: Peer) -> Command:
        heartbeat = HeartbeatData.decode(bytes(command.body))
        if not heartbeat.client_id:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the heartbeat names no client (clientID)")
        names = (producer.group_name for producer in heartbeat.producer_data_set)
        if len(heartbeat.client_id) > CLIENT_ID_CHARS_MAX or any(len(name) > GROUP_CHARS_MAX for name in names):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the heartbeat has a client id of more than {CLIENT_ID_CHARS_MAX} characters, "
                f"or a producer group of more than {GROUP_CHARS_MAX}",
            )
        who = HeartbeatSender(
            peer,
            heartbeat.client_id,
            command.language,
            command.version,
            self._clock.now_ms(),
            self._clock.monotonic_ns(),
            caller_name(peer),
        )
        changed = heartbeat.heartbeat_fingerprint == 0
        for consumer in heartbeat.consumer_data_set:
            if not self._prepare(consumer):
                continue
            if heartbeat.heartbeat_fingerprint == 0:
                self._clients.consumer_seen(consumer, who)
                continue
            if heartbeat.without_sub:
                self._clients.consumer_alive(consumer, who)
            else:
                self._clients.consumer_seen(consumer, who)
            if self._clients.fingerprint_changed(consumer.group_name, heartbeat.heartbeat_fingerprint):
                changed = True
        for producer in heartbeat.producer_data_set:
            self._clients.producer_seen(producer.group_name, who)
        return response(
            command,
            ResponseCode.SUCCESS,
            None,
            {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"},
        )

    def _prepare(self, consumer: ConsumerData) -> bool:
        """Make the group and its retry topic; False when the group may not be registered."""
        group = self._groups.get(consumer.group_name)
        if group is None:
            return False
        if self._settings.reject_pull_consumer_enable and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        if group.retry_queue_nums > 0:
            ordered = (self._topics.get(subscription.topic) for subscription in consumer.subscription_data_set)
            self._topics.ensure_retry(
                consumer.group_name,
                group.retry_queue_nums,
                unit=consumer.unit_mode,
                order=any(topic is not None and topic.order for topic in ordered),
            )
        return True

    def unregister(self, command: Command, peer: Peer) -> Command:
        self._clients.unregister(peer, command.text("producerGroup") or None, command.text("consumerGroup") or None)
        return response(command, ResponseCode.SUCCESS, None, {})

    def consumer_list(self, command: Command, peer: Peer) -> Command:
        name = command.text("consumerGroup")
        group = self._clients.consumer(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer of group {name!r} is online", {})
        return response(
            command, ResponseCode.SUCCESS, None, {}, ConsumerIdList(consumer_id_list=group.client_ids()).encode()
        )

    def check_client(self, command: Command, peer: Peer) -> Command:
        """Whether a subscription can be served, asked by a consumer before it starts."""
        self._subscriptions.check(CheckClientBody.decode(bytes(command.body)).subscription_data)
        return response(command, ResponseCode.SUCCESS)

    def lock(self, command: Command, peer: Peer) -> Command | None:
        """Answered when every copy that is waited for knows a new owner: else the next leader might name another one."""
        wanted = LockBatchRequest.decode(bytes(command.body))
        if len(wanted.client_id) > CLIENT_ID_CHARS_MAX or len(wanted.consumer_group) > GROUP_CHARS_MAX:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "the client id or the consumer group is too long")
        group, client = wanted.consumer_group, wanted.client_id
        granted = self._locks.lock(group, client, wanted.mq_set, self._clock.monotonic_ns())
        answer = response(
            command, ResponseCode.SUCCESS, None, None, LockBatchResponse(lock_ok_mq_set=granted.queues).encode()
        )
        if not granted.is_news:
            return answer

        def told() -> bool:
            self._locks.told(group, client, granted.queues)
            return False

        return self._recording.answer(command, peer, answer, refuses=True, then=told)

    def unlock(self, command: Command, peer: Peer) -> Command:
        given_up = LockBatchRequest.decode(bytes(command.body))
        self._locks.unlock(given_up.consumer_group, given_up.client_id, given_up.mq_set)
        return response(command, ResponseCode.SUCCESS)
