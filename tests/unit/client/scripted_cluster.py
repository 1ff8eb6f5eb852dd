"""Servers in memory: frames in, frames out, through the real connection code of the client.

A `Cluster` has one name server and brokers that keep queues as lists of records. What a test wants to go wrong it
scripts: `broker.script(code, answer, ...)` answers the next requests of a code itself. An answer is a response code, a
function of the request, `SILENCE` (no answer ever), or `CUT` (the connection breaks).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from orbitmq.client._async.connecting.transport import Channel, OnLost, OnRequest, SocketChannel
from orbitmq.errors import ConnectionLostError
from orbitmq.protocol.batches import decode_batch
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.records import MagicCode, Record, encode_record
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClientConnection,
    ConsumerConnection,
    ConsumerIdList,
    HeartbeatData,
    KVTable,
    LockBatchRequest,
    LockBatchResponse,
    MessageQueue,
    QueueData,
    TopicRouteData,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request, response

NAME_SERVER: Final = "ns:9876"
SILENCE: Final = "no answer"
CUT: Final = "connection breaks"

Answer = int | str | Callable[[Command], Command | None]


class Pipe(asyncio.Transport):
    """Client side of an in-memory connection; delivers in later loop turns, as a socket would."""

    def __init__(self, server: Server, channel: SocketChannel) -> None:
        super().__init__()
        self.server, self.channel = server, channel
        self.loop = asyncio.get_running_loop()
        self.frames = Connection()
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self.closing:
            self.loop.call_soon(self._arrived, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _arrived(self, data: bytes) -> None:
        if self.closing:
            return
        for command in self.frames.receive_data(data):
            self.server.received(self, command)

    def send(self, command: Command) -> None:
        """From server to client."""
        self.send_bytes(encode(command))

    def send_bytes(self, data: bytes) -> None:
        if not self.closing and not self.server.frozen:
            self.loop.call_soon(lambda: None if self.closing else self.channel.data_received(data))

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.server.pipes.discard(self)
            self.server.disconnected(self)
            self.loop.call_soon(self.channel.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Server:
    """One process: remembers what it received, answers by script or by its own handlers."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.cluster, self.address = cluster, address
        self.up = True
        self.frozen = False
        """Takes connections and says nothing."""
        self.pipes: set[Pipe] = set()
        self.log: list[Command] = []
        self._scripts: dict[int, deque[Answer]] = defaultdict(deque)

    def script(self, code: RequestCode, *answers: Answer) -> None:
        self._scripts[code].extend(answers)

    def requests(self, code: RequestCode) -> list[Command]:
        return [command for command in self.log if command.code == code]

    def forget_script(self, code: RequestCode) -> None:
        self._scripts[code].clear()

    def stop(self) -> None:
        self.up = False
        self.disconnect()

    def disconnect(self) -> None:
        for pipe in tuple(self.pipes):
            pipe.close()

    def received(self, pipe: Pipe, command: Command) -> None:
        self.log.append(command)
        if self.frozen:
            return
        script = self._scripts[command.code]
        answer: Command | None
        if script:
            scripted = script.popleft()
            if scripted == SILENCE:
                return
            if scripted == CUT:
                pipe.close()
                return
            answer = (
                scripted(command) if callable(scripted) else response(command, int(scripted), "scripted", fields={})
            )
        else:
            answer = self.handle(pipe, command)
        if answer is not None and not command.is_oneway:
            pipe.send(answer)

    def handle(self, pipe: Pipe, command: Command) -> Command | None:
        raise NotImplementedError

    def disconnected(self, pipe: Pipe) -> None:
        pass


class NameServer(Server):
    def __init__(self, cluster: Cluster, address: str) -> None:
        super().__init__(cluster, address)
        self.values: dict[str, dict[str, str]] = {}
        """Namespace -> key -> value."""

    def handle(self, pipe: Pipe, command: Command) -> Command | None:
        if command.code == RequestCode.PUT_KV_CONFIG:
            self.values.setdefault(command.text("namespace"), {})[command.text("key")] = command.text("value")
            return response(command, ResponseCode.SUCCESS)
        if command.code == RequestCode.GET_KVLIST_BY_NAMESPACE:
            table = self.values.get(command.text("namespace"))
            if table is None:
                return response(command, ResponseCode.QUERY_NOT_FOUND, "no such namespace")
            return response(command, ResponseCode.SUCCESS, body=KVTable(table).encode())
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = self.cluster.route(command.text("topic"))
            if route is None:
                return response(command, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            return response(command, ResponseCode.SUCCESS, body=route.encode())
        return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")


class Broker(Server):
    """Stores records in lists, parks pulls that find nothing, knows members by connection."""

    def __init__(self, cluster: Cluster, name: str, address: str) -> None:
        super().__init__(cluster, address)
        self.name = name
        self.queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.min_offsets: dict[tuple[str, int], int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[Pipe, HeartbeatData] = {}
        self.foreign_members: list[str] = []
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        """Who holds the lock of a group on a queue; they do not expire by themselves."""
        self.connections: ConsumerConnection | None = None
        """What the broker says of every group; by default what the last heartbeat said."""
        self.added: dict[str, str] = {}
        """Properties that the broker adds to what it stores."""
        self._stored_once: dict[tuple[str, ...], dict[str, str]] = {}
        self._parked: dict[tuple[str, int], list[tuple[Pipe, Command]]] = defaultdict(list)

    # --- for tests

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        reconsume_times: int = 0,
        sys_flag: int = 0,
        **properties: str,
    ) -> Record:
        queue = self.queues[topic, queue_id]
        properties = {"UNIQ_KEY": f"{topic}-{queue_id}-{len(queue)}", **properties, **self.added}
        record = Record(
            MagicCode.V1, 0, queue_id, 0, len(queue), self._next_physical_offset(), sys_flag, 1, b"\x0a\0\0\x09\0\0\0\x01", 2,
            b"\x0a\0\0\x01\0\0\x2a\x9f", reconsume_times, 0, body, topic, encode_properties(properties),
        )  # fmt: skip
        queue.append(record)
        for pipe, command in self._parked.pop((topic, queue_id), []):
            answer = self._pull(command, park=None)
            if answer is not None and not pipe.closing:
                pipe.send(answer)
        return record

    def store_message(self, command: Command) -> Command:
        """What a send does without a script; the answer."""
        return self._send(command)

    def store_without_answer(self, command: Command) -> None:
        """For a script: the message is stored, and the answer is lost."""
        self._send(command)

    def found(self, command: Command, records: list[Record]) -> Command:
        """For a script: the answer to a look-up that finds these records."""
        return response(command, ResponseCode.SUCCESS, fields={}, body=b"".join(map(encode_record, records)))

    def _next_physical_offset(self) -> int:
        return 1000 + 100 * (sum(map(len, self.queues.values())))

    def tell(self, code: RequestCode, fields: dict[str, str], body: bytes = b"", *, oneway: bool = False) -> Command:
        """A request of the broker to every connected member; the request."""
        command = request(code, fields, body, oneway=oneway, opaque=7)
        for pipe in self.members:
            pipe.send(command)
        return command

    def answers(self, code: int) -> list[Command]:
        """What clients answered to `tell`."""
        return [command for command in self.log if command.is_response]

    # --- as a server

    def disconnected(self, pipe: Pipe) -> None:
        self.members.pop(pipe, None)

    def handle(self, pipe: Pipe, command: Command) -> Command | None:
        if command.is_response:
            return None
        ok = response(command, ResponseCode.SUCCESS, fields={})
        queue = (command.text("topic"), command.integer("queueId"))
        match command.code:
            case RequestCode.SEND_MESSAGE_V2 | RequestCode.SEND_BATCH_MESSAGE:
                return self._send(command)
            case RequestCode.SEND_REPLY_MESSAGE_V2:
                return self._reply(command)
            case RequestCode.HEART_BEAT:
                self.members[pipe] = HeartbeatData.decode(command.body)
            case RequestCode.UNREGISTER_CLIENT:
                ok.fields = {}
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                group = command.text("consumerGroup")
                ids = [
                    member.client_id
                    for member in self.members.values()
                    if any(consumer.group_name == group for consumer in member.consumer_data_set)
                ]
                ok.body = ConsumerIdList(consumer_id_list=ids + self.foreign_members).encode()
            case RequestCode.GET_CONSUMER_CONNECTION_LIST:
                ok.body = (self.connections or self._connections(command.text("consumerGroup"))).encode()
            case RequestCode.LOCK_BATCH_MQ:
                asked = LockBatchRequest.decode(command.body)
                held = [
                    each
                    for each in asked.mq_set
                    if self.locks.setdefault((asked.consumer_group, each), asked.client_id) == asked.client_id
                ]
                ok.body = LockBatchResponse(lock_ok_mq_set=held).encode()
            case RequestCode.UNLOCK_BATCH_MQ:
                asked = LockBatchRequest.decode(command.body)
                for each in asked.mq_set:
                    if self.locks.get((asked.consumer_group, each)) == asked.client_id:
                        del self.locks[asked.consumer_group, each]
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                stored = [record.store_timestamp for record in self.queues[queue]]
                ok.fields = {"offset": str(sum(at_ms < command.integer("timestamp") for at_ms in stored))}
            case RequestCode.QUERY_CONSUMER_OFFSET:
                offset = self.offsets.get((command.text("consumerGroup"), *queue))
                if offset is None:
                    return response(command, ResponseCode.QUERY_NOT_FOUND, "none", fields={})
                ok.fields = {"offset": str(offset)}
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.offsets[command.text("consumerGroup"), *queue] = command.integer("commitOffset")
            case RequestCode.GET_MAX_OFFSET:
                ok.fields = {"offset": str(len(self.queues[queue]))}
            case RequestCode.GET_MIN_OFFSET:
                ok.fields = {"offset": str(self.min_offsets[queue])}
            case RequestCode.PULL_MESSAGE | RequestCode.LITE_PULL_MESSAGE:
                return self._pull(command, park=pipe)
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                self._send_back(command)
            case _:
                return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")
        return ok

    def tell_members(self, group: str) -> None:
        """As a broker does when a member has come, gone or changed."""
        for pipe in tuple(self.pipes):
            pipe.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True))

    def _connections(self, group: str) -> ConsumerConnection:
        found = ConsumerConnection()
        for number, member in enumerate(self.members.values()):
            for consumer in member.consumer_data_set:
                if consumer.group_name == group:
                    found.connection_set.append(
                        ClientConnection(client_id=member.client_id, client_addr=f"10.0.0.9:{number}")
                    )
                    found.subscription_table = {data.topic: data for data in consumer.subscription_data_set}
                    found.message_model = consumer.message_model
        return found

    def _send(self, command: Command) -> Command:
        topic, queue_id = command.text("b"), command.integer("e")
        self.cluster.add_topic(topic, queues=command.integer("d"), only_if_new=True)
        items = (
            [(item.body, decode_properties(item.properties)) for item in decode_batch(bytes(command.body))]
            if command.text("m") == "true"
            else [(bytes(command.body), decode_properties(command.text("i")))]
        )
        first = len(self.queues[topic, queue_id])
        properties = {**decode_properties(command.text("i")), **items[0][1]}
        once: tuple[str, ...] = ()
        if "ORBITMQ_SCOPE" in properties and not topic.startswith("%RETRY%"):  # a copy is no send
            key = properties.get("ORBITMQ_ONCE_KEY", properties["UNIQ_KEY"])
            once = (properties["ORBITMQ_SCOPE"], properties.get("ORBITMQ_EPOCH", ""), key)
            if once in self._stored_once:
                return response(command, ResponseCode.SUCCESS, fields=self._stored_once[once])
        for body, properties in items:
            flags = {"reconsume_times": command.integer("j"), "sys_flag": command.integer("f")}
            self.store(topic, queue_id, body, **flags, **properties)
        fields = {
            "msgId": ",".join(f"OFFSET-{first + number}" for number in range(len(items))),
            "queueId": str(queue_id),
            "queueOffset": str(first),
            "transactionId": items[0][1].get("UNIQ_KEY", ""),
            "MSG_REGION": "R",
        }
        if once:
            self._stored_once[once] = fields
        return response(command, ResponseCode.SUCCESS, fields=fields)

    def _reply(self, command: Command) -> Command:
        properties = decode_properties(command.text("i"))
        self.store(command.text("b"), command.integer("e"), bytes(command.body), **properties)
        for pipe, member in self.members.items():
            if member.client_id == properties["REPLY_TO_CLIENT"] and member.producer_data_set:
                fields = {"topic": command.text("b"), "properties": command.text("i"), "sysFlag": command.text("f")}
                push = request(
                    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                    {**fields, "storeTimestamp": "77"},
                    bytes(command.body),
                    opaque=9,
                )
                pipe.send(push)
                return response(command, ResponseCode.SUCCESS, fields={})
        return response(command, ResponseCode.SYSTEM_ERROR, "the requester is not here", fields={})

    def _pull(self, command: Command, park: Pipe | None) -> Command | None:
        key = (command.text("topic"), command.integer("queueId"))
        records = self.queues[key]
        offset = command.integer("queueOffset")
        if command.integer("sysFlag") & 1:
            self.offsets[command.text("consumerGroup"), *key] = command.integer("commitOffset")
        first = self.min_offsets[key]
        fields = {"suggestWhichBrokerId": "0", "minOffset": str(first), "maxOffset": str(len(records))}
        if not first <= offset <= len(records):
            fields["nextBeginOffset"] = str(first if offset < first else len(records))
            return response(command, ResponseCode.PULL_OFFSET_MOVED, fields=fields)
        found = records[offset : offset + command.integer("maxMsgNums")]
        if not found and park is not None and command.integer("suspendTimeoutMillis"):
            self._parked[key].append((park, command))
            asyncio.get_running_loop().call_later(
                command.integer("suspendTimeoutMillis") / 1000, self._expire, key, park, command
            )
            return None
        fields["nextBeginOffset"] = str(offset + len(found))
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return response(command, code, fields=fields, body=b"".join(encode_record(record) for record in found))

    def _expire(self, key: tuple[str, int], pipe: Pipe, command: Command) -> None:
        waiting = self._parked[key]
        if (pipe, command) in waiting:
            waiting.remove((pipe, command))
            answer = self._pull(command, park=None)
            if answer is not None:
                pipe.send(answer)

    def _send_back(self, command: Command) -> None:
        """At once, without the delay: the tests that look at delays look at the request."""
        group = command.text("group")
        for (topic, _), records in tuple(self.queues.items()):
            for record in records:
                wanted = topic in (command.text("originTopic"), f"%RETRY%{group}")
                if wanted and record.physical_offset == command.integer("offset"):
                    properties = decode_properties(record.properties)
                    properties["RETRY_TOPIC"] = command.text("originTopic")
                    prefix = "%DLQ%" if command.integer("delayLevel") < 0 else "%RETRY%"
                    again = record.reconsume_times + 1
                    self.store(prefix + group, 0, record.body, reconsume_times=again, **properties)
                    return


class Cluster:
    """A name server and its brokers. `dial` takes the place of the network in a client."""

    def __init__(self) -> None:
        self.name_server = NameServer(self, NAME_SERVER)
        self.brokers: dict[str, Broker] = {}
        self.topics: dict[str, dict[str, int]] = {}
        self.dials: list[str] = []
        self.masterless: set[str] = set()
        """Names of brokers of which only a slave is known."""
        self.add_topic("TBW102", queues=8, brokers=())

    def add_broker(self, name: str) -> Broker:
        broker = self.brokers[name] = Broker(self, name, f"{name}:10911")
        self.topics["TBW102"][name] = 8
        return broker

    def replace(self, name: str) -> Broker:
        """Another broker leads from now on, with all that the former one has. It is returned."""
        former = self.brokers[name]
        broker = Broker(self, name, f"{name}-next:10911")
        broker.queues, broker.offsets, broker.locks = former.queues, former.offsets, former.locks
        self.brokers[f"former {name}"], self.brokers[name] = former, broker
        return broker

    def add_topic(
        self, topic: str, *, queues: int, brokers: tuple[str, ...] | None = None, only_if_new: bool = False
    ) -> None:
        if not (only_if_new and topic in self.topics):
            self.topics[topic] = dict.fromkeys(self.brokers if brokers is None else brokers, queues)

    def route(self, topic: str) -> TopicRouteData | None:
        counts = self.topics.get(topic)
        if not counts:
            return None
        return TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=6)
                for name, count in counts.items()
            ],
            broker_datas=[
                BrokerData(
                    broker_name=name,
                    broker_addrs={1 if name in self.masterless else 0: self.brokers[name].address},
                    cluster="C",
                )
                for name in counts
            ],
        )

    async def dial(self, address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
        self.dials.append(address)
        servers: list[Server] = [self.name_server, *self.brokers.values()]
        for server in servers:
            if server.address == address and server.up:
                channel = SocketChannel(address, on_request, on_lost)
                pipe = Pipe(server, channel)
                server.pipes.add(pipe)
                channel.connection_made(pipe)
                return channel
        raise ConnectionLostError(f"no connection to {address}: refused", request_sent=False)
