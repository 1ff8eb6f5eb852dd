"""Sends and pulls of an edge over plain connections, every answer entered in the account.

Rules of this file
1. One request is one answer: nothing is repeated here, and what is not answered is entered as such.
2. Numbers of messages come from one counter of the run, so that one account holds all its topics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from tests.chaos.account import Place
from tests.chaos.bodies import body_of, number_of
from tests.edges.account import EdgeAccount
from tests.system.server_process import ClosedByServer, RawClient, pull_fields, send_fields

from orbitmq.protocol.records import Record, iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, encode, request

WINDOW: Final = 64
"""Sends on the way at a time."""

GROUP: Final = "edge-readers"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Traffic:
    def __init__(self, account: EdgeAccount) -> None:
        self.account = account
        self.numbers = count()

    # --- sending ----------------------------------------------------------------------------------------------------------

    def send(
        self,
        client: RawClient,
        topic: str,
        queues: Sequence[int] = (0,),
        *,
        count: int = 1,
        size: int = 0,
        due_ms: int = 0,
        more: Callable[[int], dict[str, str]] = lambda number: {},
    ) -> list[int]:
        """Send so many messages to each of the queues; gives the codes of the answers, -1 where none came.

        more: further properties of the message with that number.
        """
        wanted = [queue for _ in range(count) for queue in queues]
        codes: list[int] = []
        for first in range(0, len(wanted), WINDOW):
            codes += self._send_window(client, topic, wanted[first : first + WINDOW], size, due_ms, more)
        return codes

    def _send_window(
        self,
        client: RawClient,
        topic: str,
        queues: Sequence[int],
        size: int,
        due_ms: int,
        more: Callable[[int], dict[str, str]],
    ) -> list[int]:
        sent: dict[int, int] = {}
        frames = []
        for queue in queues:
            number = next(self.numbers)
            properties = (
                {"UNIQ_KEY": f"{number:032X}"} | ({"TIMER_DELIVER_MS": str(due_ms)} if due_ms else {}) | more(number)
            )
            opaque = client.next_opaque()
            sent[opaque] = number
            fields = send_fields(topic, properties, e=queue)
            frames.append(encode(request(RequestCode.SEND_MESSAGE_V2, fields, body_of(number, size), opaque=opaque)))
        codes = []
        try:
            client.write(b"".join(frames))
            while sent:
                answer = client.read()
                if answer.is_response and answer.opaque in sent:
                    self.account.send_answered(sent.pop(answer.opaque), answer.code, due_ms)
                    codes.append(answer.code)
        except (ClosedByServer, OSError):
            for number in sent.values():
                self.account.send_answered(number, None, due_ms)
                codes.append(-1)
        return codes

    def send_one(
        self, client: RawClient, topic: str, properties: dict[str, str], *, due_ms: int = 0
    ) -> tuple[int, Command]:
        """One send with properties of its own; its number and its answer. A repeat is `repeat`."""
        number = next(self.numbers)
        answer = self.repeat(client, topic, properties, number, due_ms=due_ms)
        self.account.send_answered(number, answer.code, due_ms)
        return number, answer

    def repeat(
        self, client: RawClient, topic: str, properties: dict[str, str], number: int, *, due_ms: int = 0
    ) -> Command:
        """The send of that message once more; its answer is not entered."""
        if due_ms:
            properties = properties | {"TIMER_DELIVER_MS": str(due_ms)}
        return client.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, properties), body_of(number))

    # --- receiving --------------------------------------------------------------------------------------------------------

    def enter(self, topic: str, queue: int, records: Sequence[Record]) -> None:
        at_ms = now_ms()
        for record in records:
            number = number_of(bytes(record.body))
            if number is None:
                self.account.strangers.append(bytes(record.body[:40]))
            else:
                self.account.received(number, Place(topic, queue, record.queue_offset), at_ms)

    def read(self, client: RawClient, topic: str, queue: int = 0, *, begin: int = 0, errors_max: int = 50) -> int:
        """Pull from `begin` on until there is no more; gives the offset behind the last message. An error is asked again."""
        at, errors = begin, 0
        while True:
            answer = client.call(RequestCode.PULL_MESSAGE, pull_fields(topic, queue, at))
            self.account.answered("pull", answer.code)
            if answer.code == ResponseCode.SUCCESS:
                self.enter(topic, queue, list(iter_records(bytes(answer.body))))
            elif answer.code == ResponseCode.PULL_NOT_FOUND:
                return at
            elif answer.code not in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
                errors += 1
                if errors > errors_max:
                    return at
                time.sleep(0.01)
                continue
            at = int(answer.fields["nextBeginOffset"])

    def read_each(self, client: RawClient, topic: str, queues: Sequence[int]) -> None:
        """Read queues of a few messages each, many at a time; where that is not all, one by one."""
        for first in range(0, len(queues), WINDOW):
            asked = {client.next_opaque(): queue for queue in queues[first : first + WINDOW]}
            frames = [
                encode(request(RequestCode.PULL_MESSAGE, pull_fields(topic, queue), opaque=opaque))
                for opaque, queue in asked.items()
            ]
            client.write(b"".join(frames))
            again = []
            while asked:
                answer = client.read()
                if not answer.is_response or answer.opaque not in asked:
                    continue
                queue = asked.pop(answer.opaque)
                self.account.answered("pull", answer.code)
                if answer.code == ResponseCode.SUCCESS:
                    self.enter(topic, queue, list(iter_records(bytes(answer.body))))
                if (
                    answer.code != ResponseCode.SUCCESS
                    or answer.fields["nextBeginOffset"] != answer.fields["maxOffset"]
                ):
                    again.append(queue)
            for queue in again:
                self.read(client, topic, queue)

    def create_group(self, client: RawClient, group: str = GROUP) -> None:
        answer = client.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps({"groupName": group}).encode()
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def consume(self, client: RawClient, topic: str, queue: int = 0, *, group: str = GROUP) -> int:
        """Read as a group does: from its saved offset on, and save where that ended."""
        saved = client.call(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        )
        begin = int(saved.fields["offset"]) if saved.code == ResponseCode.SUCCESS else 0
        end = self.read(client, topic, queue, begin=begin)
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(end)}
        answer = client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        self.account.answered("commit", answer.code)
        return end
