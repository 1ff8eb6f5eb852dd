"""Drives the C++ client inside the PyPI wheel `rocketmq` by commands on standard input; events are JSON lines on standard output.

Runs in its own environment, because the wheel occupies the import name `rocketmq`.

usage: driver.py NAMESERVER
produce?topic=&mode=plain|oneway|batch&count=&prefix=[&tag=][&key=][&level=][&size=]
consume?group=&topic=[&expression=][&fail=N]        fail: attempts per message that ask for a retry (-1: all)
close

The wheel's own `subscribe` lets an exception of the callback escape into ctypes, where it counts as success; the driver
therefore registers its callback one level lower, with the status the C interface defines.
"""

import hashlib
import json
import os
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qs

from rocketmq import client, ffi  # type: ignore[import-not-found]

SHOWN_BODY = 200
lock = threading.Lock()
producer: Any = None
consumers: list[Any] = []


def emit(event: str, **fields: object) -> None:
    with lock:
        print(json.dumps({"event": event, **fields}), flush=True)


def text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def body_of(command: dict[str, str], i: int) -> bytes:
    start = f"{command.get('prefix', 'body')}-{i}".encode()
    size = int(command.get("size", 0))
    return start + bytes(97 + at % 23 for at in range(len(start), size))


def message_of(command: dict[str, str], i: int) -> Any:
    message = client.Message(command["topic"])
    message.set_body(body_of(command, i))
    if "tag" in command:
        message.set_tags(command["tag"])
    if "key" in command:
        message.set_keys(f"{command['key']}-{i}")
    if "level" in command:
        message.set_delay_time_level(int(command["level"]))
    return message


def produce(name_server: str, command: dict[str, str]) -> None:
    global producer
    if producer is None:
        producer = client.Producer("InteropCppProducer")
        producer.set_namesrv_addr(name_server)
        producer.start()
    mode = command.get("mode", "plain")
    messages = [message_of(command, i) for i in range(int(command.get("count", 1)))]
    if mode == "batch":
        result = producer.send_batch(messages)
        emit("sent", topic=command["topic"], status=result.status.name, msgId=result.msg_id, queueOffset=result.offset)
        return
    for message in messages:
        if mode == "oneway":
            producer.send_oneway(message)
            emit("sent", topic=command["topic"], status="ONEWAY")
        else:
            result = producer.send_sync(message)
            emit(
                "sent",
                topic=command["topic"],
                status="SEND_" + result.status.name,
                msgId=result.msg_id,
                queueOffset=result.offset,
                sentAt=int(time.time() * 1000),
            )


def consume(name_server: str, command: dict[str, str]) -> None:
    group, fail = command["group"], int(command.get("fail", 0))
    attempts: dict[bytes, int] = {}
    consumer = client.PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_thread_count(2)
    consumer.set_instance_name(f"{os.getpid()}-{len(consumers)}")

    def on_message(_consumer: object, handle: object) -> int:
        received_at = int(time.time() * 1000)
        message = client.RecvMessage(handle)
        body = message.body
        with lock:
            attempt = attempts[body] = attempts.get(body, 0) + 1
        fails = fail < 0 or attempt <= fail
        names = ("UNIQ_KEY", "DELAY", "TAGS", "KEYS", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "REAL_TOPIC")
        properties = {name: text(message.get_property(name)) for name in names}
        emit(
            "received",
            group=group,
            topic=message.topic,
            queueId=message.queue_id,
            queueOffset=message.queue_offset,
            msgId=message.id,
            tags=text(message.tags) or None,
            keys=text(message.keys) or None,
            reconsumeTimes=message.reconsume_times,
            bornAt=message.born_timestamp,
            storeAt=message.store_timestamp,
            properties={k: v for k, v in properties.items() if v},
            bodySize=len(body),
            bodySha1=hashlib.sha1(body).hexdigest(),
            body=body.decode() if len(body) <= SHOWN_BODY else None,
            attempt=attempt,
            ok=not fails,
            receivedAt=received_at,
        )
        status = ffi._CConsumeStatus.RECONSUME_LATER if fails else ffi._CConsumeStatus.CONSUME_SUCCESS
        return int(status.value)

    ffi.dll.Subscribe(consumer._handle, command["topic"].encode(), command.get("expression", "*").encode())
    consumer._register_callback(on_message)
    consumer.start()
    consumers.append(consumer)


def main() -> None:
    name_server = sys.argv[1]
    emit("ready", python=sys.version.split()[0])
    for line in sys.stdin:
        name, _, query = line.strip().partition("?")
        if name == "close":
            break
        command = {key: values[-1] for key, values in parse_qs(query).items()}
        try:
            {"produce": produce, "consume": consume}[name](name_server, command)
            emit("done", command=line.strip())
        except Exception as error:
            emit("failed", command=line.strip(), error=repr(error))
    for consumer in consumers:
        consumer.shutdown()
    if producer is not None:
        producer.shutdown()
    emit("closed")
    # The library's threads may still run; its own destructors are known to abort at interpreter exit.
    os._exit(0)


if __name__ == "__main__":
    main()
