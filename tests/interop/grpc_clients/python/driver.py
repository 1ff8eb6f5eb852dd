"""Drives the gRPC client in the wheel `rocketmq-python-client` by commands on standard input; events are JSON lines on standard output.

Runs in an environment of its own. The commands are those of GrpcDriver.java; this client knows delivery times and invisible times in whole
seconds, and does not count its own attempts at a message in order.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]

REQUEST_LIMIT_S = 30
HELD_S = 2
lock = threading.Lock()


def emit(event: str, **fields: object) -> None:
    with lock:
        print(json.dumps({"event": event, **fields}), flush=True)


def emit_message(event: str, message: Any, **fields: object) -> None:
    emit(
        event,
        receivedAt=int(time.time() * 1000),
        topic=message.topic,
        body=message.body.decode(),
        msgId=message.message_id,
        attempt=message.delivery_attempt,
        tag=message.tag,
        keys=" ".join(sorted(message.keys)),
        order=message.message_group,
        deliverAt=message.delivery_timestamp or 0,
        priority=message.priority,
        properties=message.properties,
        **fields,
    )


def filter_of(command: dict[str, str]) -> Any:
    if "sql" in command:
        return FilterExpression(command["sql"], FilterType.SQL)
    return FilterExpression(command.get("tags", "*"))


class Checker(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Any) -> Any:
        emit_message("checked", message)
        return resolution_of(message.properties["checked"])


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, group: str, fail: int) -> None:
        self.group, self.fail = group, fail
        self.attempts: Counter[str] = Counter()

    def consume(self, message: Any) -> Any:
        with lock:
            self.attempts[message.message_id] += 1
            fails = self.fail < 0 or self.attempts[message.message_id] <= self.fail
        emit_message("received", message, group=self.group, ok=not fails)
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def resolution_of(name: str) -> Any:
    return TransactionResolution.Value("TRANSACTION_RESOLUTION_UNSPECIFIED" if name == "unknown" else name.upper())


class Program:
    """The clients of the process: one producer, and consumers as commands ask for them."""

    def __init__(self, endpoint: str, topics: list[str]) -> None:
        credentials = Credentials(os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY"))
        self.configuration = ClientConfiguration(endpoint, credentials, request_timeout=REQUEST_LIMIT_S)
        self.producer = Producer(self.configuration, topics, Checker())
        self.producer.startup()
        self.listening: list[Any] = []
        self.simple: dict[tuple[str, str], Any] = {}
        self.last: Any = None
        self.popped: list[Any] = []

    def send(self, command: dict[str, str]) -> None:
        for body in command["body"].split(","):
            try:
                receipt = self.producer.send(message_of(command, body))
                emit("sent", body=body, msgId=receipt.message_id, handle=receipt.recall_handle)
            except Exception as error:
                emit("send_failed", body=body, error=repr(error))

    def transact(self, command: dict[str, str]) -> None:
        transaction = self.producer.begin_transaction()
        receipt = self.producer.send(message_of(command, command["body"]), transaction)
        emit("sent", body=command["body"], msgId=receipt.message_id)
        if command["state"] == "commit":
            transaction.commit()
        elif command["state"] == "rollback":
            transaction.rollback()

    def recall(self, command: dict[str, str]) -> None:
        try:
            emit("recalled", msgId=self.producer.recall_message(command["topic"], command["handle"]))
        except Exception as error:
            emit("recall_failed", error=repr(error))

    def push(self, command: dict[str, str]) -> None:
        listener = Listener(command["group"], int(command.get("fail", 0)))
        subscription = {command["topic"]: filter_of(command)}
        consumer = PushConsumer(
            self.configuration, command["group"], listener, subscription, consumption_thread_count=2
        )
        consumer.startup()
        self.listening.append(consumer)

    def pop(self, command: dict[str, str]) -> None:
        name = command["group"], command["topic"]
        if name not in self.simple:
            subscription = {command["topic"]: filter_of(command)}
            consumer = SimpleConsumer(self.configuration, command["group"], subscription, await_duration=HELD_S)
            consumer.startup()
            self.simple[name] = consumer
        self.last = self.simple[name]
        invisible_s = int(command.get("invisible", 20_000)) // 1000
        self.popped = self.last.receive(int(command.get("count", 16)), invisible_s)
        for message in self.popped:
            emit_message("popped", message, group=command["group"])
        self.settle(command.get("then", "ack"))

    def again(self, command: dict[str, str]) -> None:
        self.settle(command["then"])

    def settle(self, how: str) -> None:
        for message in self.popped:
            try:
                if how == "ack":
                    self.last.ack(message)
                elif how.startswith("hide:"):
                    self.last.change_invisible_duration(message, int(how[5:]) // 1000)
            except Exception as error:
                emit_message("refused", message, error=repr(error))

    def close(self) -> None:
        """Leave the push consumers: each would wait for the poll that is under way."""
        for client in (*self.simple.values(), self.producer):
            client.shutdown()


def message_of(command: dict[str, str], body: str) -> Any:
    message = Message()
    message.topic, message.body = command["topic"], body.encode()
    message.tag = command.get("tag", "red")
    for key in command.get("key", body).split():
        message.keys = key
    if "order" in command:
        message.message_group = command["order"]
    if "at" in command:
        message.delivery_timestamp = int(command["at"]) // 1000
    if "priority" in command:
        message.priority = int(command["priority"])
    for name in ("checked", "price", "note"):
        if name in command:
            message.add_property(name, command[name])
    return message


def main() -> None:
    program = Program(sys.argv[1], sys.argv[2].split(","))
    emit("ready", python=sys.version.split()[0])
    for line in sys.stdin:
        name, _, query = line.strip().partition("?")
        if name == "close":
            break
        command = {key: values[-1] for key, values in parse_qs(query).items()}
        try:
            getattr(program, name)(command)
            emit("done", command=line.strip())
        except Exception as error:
            emit("failed", command=line.strip(), error=repr(error))
    program.close()
    emit("closed")
    os._exit(0)  # threads of the client may still wait


if __name__ == "__main__":
    main()
