"""Telemetry, Heartbeat, NotifyClientTermination: a client says who it is, that it is still there, and that it goes.

Rules of this file
1. Settings are always answered with a status and the merged settings, on the stream that brought them, and that stream is the way to the
   client from then on. They are sent again when the configuration of the client's group has changed.
2. Wrong settings end the stream with a status of gRPC, which is what clients look at there.
3. A heartbeat repeats what the settings said: who is a member of which group. Nothing in its request is believed but that it came, and its
   group is compared, as a gate has judged by that name.
4. Commands that nobody here knows are passed over: newer clients may send them.

Source: RocketMQ gRPC, telemetry; heartbeat, termination, liveness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from orbitmq.broker.clients import HeartbeatSender
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import LiteTopicRefusal
from orbitmq.broker.messaging.lite_topics import LITE_CLIENTS
from orbitmq.broker.messaging.refusals import refused_status
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.sessions import Session, Sessions
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.grpc import SETTINGS_BYTES_MAX, SETTINGS_PARTS_MAX, SETTINGS_TOPICS_MAX
from orbitmq.protocol.filtering.expression import SQL92, TAG
from orbitmq.protocol.filtering.tags import EVERYTHING
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.decoding import read_command, read_message
from orbitmq.protocol.grpc.merged_settings import ClientRules, consumer_settings, part_count, producer_settings
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Resource,
    Settings,
    SubscriptionEntry,
    TelemetryCommand,
)
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.resource_names import group_of, topic_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.remoting.bodies import ConsumerData, ConsumeType, SubscriptionData

OK: Final = status_of(Code.OK)

PRODUCERS: Final = frozenset({ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER})
CONSUMERS: Final = {
    ClientType.CLIENT_TYPE_UNSPECIFIED: ConsumeType.CONSUME_PASSIVELY,
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
"""Types of clients with a subscription that are served here, and how tools see them."""

ALIVE: Final = HeartbeatResponse(status=OK).SerializeToString()
"""The answer to a heartbeat."""


class TelemetryCalls:
    def __init__(self, core: BrokerCore, sessions: Sessions, settings: MessagingSettings) -> None:
        self._clients = core.clients
        self._groups = core.groups
        self._topics = core.topics
        self._clock = core.clock
        self._sessions = sessions
        self._rules = ClientRules(
            body_bytes_max=settings.body_bytes_max_of(core.store.settings),
            validates_types=settings.checks_types,
            producer_attempts=settings.producer_attempts,
            backoff_initial_ms=settings.producer_backoff_initial_ms,
            backoff_max_ms=settings.producer_backoff_max_ms,
            backoff_multiplier=settings.producer_backoff_multiplier,
            receive_batch_max=settings.receive_batch_max,
            polling_ms=settings.polling_ms_max,
        )

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {
            Rpc.TELEMETRY: ServedCall(read_command, self.telemetry, self.stream_over),
            Rpc.HEARTBEAT: ServedCall(partial(read_message, HeartbeatRequest), self.heartbeat),
            Rpc.NOTIFY_CLIENT_TERMINATION: ServedCall(
                partial(read_message, NotifyClientTerminationRequest), self.terminate
            ),
        }

    # --- the stream ---------------------------------------------------------------------------------------------------

    def telemetry(self, call: OpenCall, command: TelemetryCommand) -> None:
        """One command of a client. Raises CallError."""
        kind = command.WhichOneof("command")
        if kind == "settings":
            try:
                self._take_settings(call, command.settings)
            except (RpcError, Refusal) as error:
                raise _stream_error(error) from error
            return
        session = self._sessions.of(call)
        if session is None:
            return
        if kind == "thread_stack_trace":
            self._sessions.questions.answered(session, command.thread_stack_trace.nonce, command)
        elif kind == "verify_message_result":
            self._sessions.questions.answered(session, command.verify_message_result.nonce, command)
        elif kind == "verify_message_command":  # the Node client answers with the question
            self._sessions.questions.answered(session, command.verify_message_command.nonce, command)

    def stream_over(self, call: OpenCall) -> None:
        session = self._sessions.of(call)
        if session is not None and session.stream is call:
            session.stream = None

    def _take_settings(self, call: OpenCall, settings: Settings) -> None:
        """Raises RpcError and Refusal, before anything is known of a client that is new."""
        size = settings.ByteSize()
        if size > SETTINGS_BYTES_MAX:
            raise RpcError(Code.BAD_REQUEST, f"settings have at most {SETTINGS_BYTES_MAX} bytes, not {size}")
        parts = part_count(settings)
        if parts > SETTINGS_PARTS_MAX:
            raise RpcError(
                Code.BAD_REQUEST,
                f"settings have at most {SETTINGS_PARTS_MAX} topics, delays, addresses and properties, not {parts}",
            )
        topics, consumer = self._named(settings)
        is_new = self._sessions.of(call) is None
        session = self._sessions.begin(call)
        left_topics, left_group = set(session.topics).difference(topics), session.group
        try:
            self._sessions.keep_settings(session, settings)
            session.consumer, session.stream = consumer, call
            for topic in left_topics:
                self._clients.unregister(session, topic, None)
            if left_group != session.group:
                self._clients.unregister(session, None, left_group)
            who = self._sessions.seen(session, call)
            self._register(session, topics, who, is_repeat=False)
        except (RpcError, Refusal):
            if is_new:
                session.close("its first settings were refused")
            raise
        self._send_settings(session)

    def _named(self, settings: Settings) -> tuple[list[str], ConsumerData | None]:
        """The topics of a producer, or the group of a consumer and what it wants. Raises RpcError for settings that are wrong."""
        kind = settings.WhichOneof("pub_sub")
        if settings.client_type in LITE_CLIENTS:
            raise RpcError(Code.UNRECOGNIZED_CLIENT_TYPE, LiteTopicRefusal("consumers of lite topics").remark)
        if kind == "publishing" and settings.client_type in PRODUCERS:
            _check_count(len(settings.publishing.topics))
            return [topic_of(topic) for topic in settings.publishing.topics], None
        if kind == "subscription" and settings.client_type in CONSUMERS:
            subscription = settings.subscription
            _check_count(len(subscription.subscriptions))
            now_ms = self._clock.now_ms()
            return [], ConsumerData(
                group_name=group_of(subscription.group),
                consume_type=CONSUMERS[ClientType(settings.client_type)],
                subscription_data_set=[_wish(entry, now_ms) for entry in subscription.subscriptions],
            )
        raise RpcError(
            Code.UNRECOGNIZED_CLIENT_TYPE,
            f"settings of client type {settings.client_type} with {kind or 'neither publishing nor subscription'} are not served "
            "here: producers have publishing, push and simple consumers have subscription",
        )

    def _register(self, session: Session, topics: Iterable[str], who: HeartbeatSender, *, is_repeat: bool) -> None:
        if session.consumer is not None:
            group = self._groups.get(session.group)
            if group is None:
                return
            if group.retry_queue_nums > 0:  # by the route of this topic, tools of RocketMQ find the members of a group
                self._topics.ensure_retry(session.group, group.retry_queue_nums)
            self._clients.consumer_seen(session.consumer, who, is_repeat=is_repeat)
        else:
            for topic in topics:
                self._clients.producer_seen(topic, who)

    def _send_settings(self, session: Session) -> None:
        """Tell a client what counts for it."""
        if session.consumer is None:
            merged = producer_settings(session.settings, self._rules)
        else:
            session.told_group = self._groups.known(session.group)
            merged = consumer_settings(session.settings, session.told_group, self._rules)
        session.tell(TelemetryCommand(status=OK, settings=merged))

    # --- being there --------------------------------------------------------------------------------------------------

    def heartbeat(self, call: OpenCall, request: HeartbeatRequest) -> None:
        session = self._known(call)
        _check_group(session, request.group)
        who = self._sessions.seen(session, call)
        self._register(session, session.topics, who, is_repeat=True)
        if session.consumer is not None and self._groups.known(session.group) is not session.told_group:
            self._send_settings(session)
        call.answer(ALIVE)
        call.end()

    def terminate(self, call: OpenCall, request: NotifyClientTerminationRequest) -> None:
        session = self._known(call)
        _check_group(session, request.group)
        session.close("the client stops")
        call.answer(NotifyClientTerminationResponse(status=OK).SerializeToString())
        call.end()

    def _known(self, call: OpenCall) -> Session:
        session = self._sessions.of(call)
        if session is None:
            raise RpcError(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "this client has sent no settings here, or was silent for too long: settings come over Telemetry",
            )
        return session


def _check_group(session: Session, named: Resource) -> None:
    """A consumer names its group: the caller's permission for that one was asked. Raises RpcError."""
    if session.consumer is not None and group_of(named) != session.group:
        raise RpcError(
            Code.ILLEGAL_CONSUMER_GROUP,
            f"the settings of this client are of group {session.group!r}, not {named.name!r}",
        )


def _wish(entry: SubscriptionEntry, now_ms: int) -> SubscriptionData:
    """What a consumer wants of a topic."""
    is_sql = entry.expression.type == FilterType.SQL
    text = entry.expression.expression or EVERYTHING
    tags = [] if is_sql or text == EVERYTHING else [tag.strip() for tag in text.split("||") if tag.strip()]
    return SubscriptionData(
        topic=topic_of(entry.topic),
        sub_string=text,
        tags_set=tags,
        sub_version=now_ms,
        expression_type=SQL92 if is_sql else TAG,
    )


def _check_count(count: int) -> None:
    if count > SETTINGS_TOPICS_MAX:
        raise RpcError(Code.BAD_REQUEST, f"settings name at most {SETTINGS_TOPICS_MAX} topics, not {count}")


def _stream_error(error: RpcError | Refusal) -> CallError:
    """How a stream ends whose settings cannot be taken. The text begins with the code that an answer would have."""
    status = status_of(error.code, str(error)) if isinstance(error, RpcError) else refused_status(error)
    code = Code(status.code)
    if code == Code.TOO_MANY_REQUESTS:
        kind = GrpcStatus.RESOURCE_EXHAUSTED
    else:
        kind = GrpcStatus.INVALID_ARGUMENT if 40_000 <= code < 50_000 else GrpcStatus.INTERNAL
    return CallError(kind, f"{code.name}: {status.message}")
