"""Requests that brokers send to a client.

Rules of this file
1. A request is served in the background, so that it never holds up the answers on its connection; only so many at a time.
2. Notices that expect no answer get none; everything unknown is answered "not supported".
3. A request about a group that is not in this client is answered with an error, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.connecting.transport import Channel
from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settlement
from orbitmq.client._async.consuming.reading import restore_body
from orbitmq.client._async.parts import ClientContext, Member
from orbitmq.client._async.runtime import Seldom, Tasks, log, monotonic_ms, stacks_of_tasks
from orbitmq.client._async.sending.requests import send_reply
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import OrbitError
from orbitmq.limits.client import CLIENT_CALLBACKS_MAX, CLIENT_STACKS_CHARS_MAX
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    MessageQueue,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name


class Callbacks:
    """Serves what brokers ask of one client."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client
        self._tasks = Tasks(f"callbacks of {client.client_id}")
        self._strangers = Seldom()
        """Questions about transactions of groups that are not here."""

    def received(self, channel: Channel, command: Command) -> None:
        """Called for every request on any connection of the client, from within the reading of the connection."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            group = command.text("consumerGroup")
            member = self._client.consumers.get(group) or self._client.other_consumers.get(group)
            if member is not None:
                member.rebalance_soon()
                member.members_changed()  # or a member has come to subscribe to something else
            return
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and self._client.waiting_replies.arrived_plain(
            command
        ):
            self._answer(channel, command, ResponseCode.SUCCESS, None)  # also when nobody waits any more
            return
        if len(self._tasks) >= CLIENT_CALLBACKS_MAX:
            self._answer(
                channel, command, ResponseCode.SYSTEM_BUSY, f"{CLIENT_CALLBACKS_MAX} requests are served already"
            )
            return
        self._tasks.spawn(self._serve(channel, command), f"request {command.code} of {channel.address}")

    async def close(self) -> None:
        await self._tasks.close()

    async def _serve(self, channel: Channel, command: Command) -> None:
        try:
            answer = await self._handle(channel, command)
        except (OrbitError, ValueError) as error:
            log.warning("request %d of broker %s failed: %s", command.code, channel.address, error)
            answer = response(command, ResponseCode.SYSTEM_ERROR, str(error))
        if not command.is_oneway and answer is not None:
            channel.answer(answer)

    async def _handle(self, channel: Channel, command: Command) -> Command | None:
        match command.code:
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                return await self._reset(command)
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                return self._status(command)
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                return self._running_info(command)
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                return await self._consume_directly(command)
            case RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
                await self._client.waiting_replies.arrived(command)
                return response(command, ResponseCode.SUCCESS)
            case RequestCode.CHECK_TRANSACTION_STATE:
                await self._check_transaction(channel, command)
                return None
            case _:
                return response(
                    command,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"this client does not serve request code {command.code}",
                )

    async def _reset(self, command: Command) -> Command | None:
        group = command.text("group")
        consumer = self._client.consumers.get(group) or self._client.other_consumers.get(group)
        if consumer is None:
            log.warning("offsets of group %r were to be reset, but it is not here", command.text("group"))
            return None
        offsets = ResetOffsetBody.decode(bytes(command.body)).offset_table
        await consumer.reset({queue: offset for queue, offset in offsets.items() if offset >= 0})
        return None

    def _status(self, command: Command) -> Command:
        group, topic = command.text("group"), command.text("topic")
        consumer, lite = self._client.consumers.get(group), self._client.other_consumers.get(group)
        if consumer is not None:
            for owned in consumer.owned.values():
                consumer.note_progress(owned)
            table = consumer.offsets.table.of_topic(topic)
        elif lite is not None:
            table = lite.progress(topic)
        else:
            return _not_here(command, group)
        return response(command, ResponseCode.SUCCESS, body=ConsumerStatusBody(message_queue_table=table).encode())

    def _running_info(self, command: Command) -> Command:
        group = command.text("consumerGroup")
        stacks = stacks_of_tasks(CLIENT_STACKS_CHARS_MAX) if command.boolean("jstackEnable") else None
        lite = self._client.other_consumers.get(group)
        if lite is not None:
            return response(command, ResponseCode.SUCCESS, body=lite.running_info(stacks).encode())
        consumer = self._client.consumers.get(group)
        if consumer is None:
            return _not_here(command, group)
        options = consumer.options
        now_ms = monotonic_ms()
        info = ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self._client.name_servers.choice),
                "PROP_CONSUME_TYPE": consumer.heartbeat().consume_type.value,
                "PROP_CONSUMEORDERLY": "true" if options.orderly else "false",
                "PROP_THREADPOOL_CORE_SIZE": "1",
                "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_at_ms),
                "messageModel": consumer.heartbeat().message_model.value,
                "consumeFromWhere": options.consume_from.value,
                "pullBatchSize": str(options.pull_messages_count),
                "pullThresholdForQueue": str(options.queue_messages_max),
                "consumeConcurrentlyMaxSpan": str(options.span_max),
                "maxReconsumeTimes": str(-1 if options.max_retries_count is None else options.max_retries_count),
                "consumeTimeout": str(options.settle_timeout_ms // 60_000),
                "clientLanguage": "python",
            },
            subscription_set=[subscription.body() for subscription in consumer.subscriptions.values()],
            mq_table=self._queue_infos(consumer),
            status_table={
                topic: status
                for topic, status in consumer.statistics.statuses(now_ms).items()
                if topic in consumer.subscriptions
            },
            jstack=stacks,
        )
        return response(command, ResponseCode.SUCCESS, body=info.encode())

    def _queue_infos(self, consumer: Member) -> dict[MessageQueue, ProcessQueueInfo]:
        # Instants inside the client are monotonic; what administrators read is wall time.
        to_wall_ms = self._client.clock.now_ms() - monotonic_ms()
        infos: dict[MessageQueue, ProcessQueueInfo] = {}
        for queue, owned in consumer.owned.items():
            consumer.note_progress(owned)
            messages = owned.messages
            first = messages.first_offset()
            infos[queue] = ProcessQueueInfo(
                commit_offset=consumer.offsets.table.get(queue) or 0,
                cached_msg_min_offset=first or 0,
                cached_msg_max_offset=messages.last_offset if first is not None else 0,
                cached_msg_count=len(messages),
                cached_msg_size_in_mib=messages.bytes_total >> 20,
                locked=owned.locked_at_ms is not None,
                last_lock_timestamp=0 if owned.locked_at_ms is None else owned.locked_at_ms + to_wall_ms,
                droped=messages.dropped,
                last_pull_timestamp=messages.last_pull_ms + to_wall_ms,
                last_consume_timestamp=messages.last_consumed_ms + to_wall_ms,
            )
        return infos

    async def _check_transaction(self, channel: Channel, command: Command) -> None:
        record = decode_record(bytes(command.body))
        properties = decode_properties(record.properties)
        group = properties.get(Property.PGROUP, "")
        producer = self._client.producers.get(group)
        if producer is None:
            if (unlogged := self._strangers.due()) is not None:
                log.warning(
                    "broker %s asks about a transaction of group %r, which is not here; %d such questions before were not logged",
                    channel.address, group, unlogged,
                )  # fmt: skip
            return
        queue = MessageQueue(record.topic, command.text("bname"), record.queue_id)
        message = StoredMessage(record, await restore_body(record), properties, queue)
        await producer.transactions.asked(channel.address, command, message)

    async def _consume_directly(self, command: Command) -> Command:
        group = command.text("consumerGroup")
        consumer = self._client.consumers.get(group)
        if consumer is None:
            return _not_here(command, group)
        if consumer.handler is None:
            return response(
                command,
                ResponseCode.SYSTEM_ERROR,
                f"group {group!r} iterates over its messages here; only a handler given to run() or run_batches() can be called directly",
            )
        record = decode_record(bytes(command.body))
        queue = MessageQueue(record.topic, command.text("brokerName"), record.queue_id)
        body = await restore_body(record)
        message = ReceivedMessage(record, body, None, queue, _Detached(self._client))
        started_ms = monotonic_ms()
        outcome = ConsumeResult.CR_SUCCESS
        remark: str | None = None
        try:
            await consumer.handler(message)
        except Exception as error:
            outcome, remark = ConsumeResult.CR_THROW_EXCEPTION, repr(error)
        else:
            if message.settlement in (Settlement.RETRIED, Settlement.DEAD_LETTERED):
                outcome = ConsumeResult.CR_LATER
        result = ConsumeMessageDirectlyResult(
            consume_result=outcome,
            order=consumer.options.orderly,
            remark=remark,
            spent_time_mills=monotonic_ms() - started_ms,
        )
        return response(command, ResponseCode.SUCCESS, body=result.encode())

    def _answer(self, channel: Channel, command: Command, code: ResponseCode, remark: str | None) -> None:
        if not command.is_oneway:
            channel.answer(response(command, code, remark))


class _Detached:
    """Settles a message that was consumed on an administrator's request: its queue goes on as it was."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client

    def holds(self, message: ReceivedMessage) -> bool:
        return True

    def begin(self, message: ReceivedMessage, now_ms: int) -> bool:
        return True

    def ack(self, message: ReceivedMessage) -> bool:
        return True

    async def send_back(self, message: ReceivedMessage, delay_level: int, after_ms: int | None) -> bool:
        return True

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None:
        await send_reply(self._client, message, body, tag=tag, properties=properties, timeout_ms=timeout_ms)


def _not_here(command: Command, group: str) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR, f"group {group!r} has no consumer in this client")
