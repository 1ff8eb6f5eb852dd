"""Edge: idempotent sends repeated across all that can become of the first one."""

from __future__ import annotations

import time
from typing import Final

from tests.edges.run import EdgeRun
from tests.edges.traffic import now_ms
from tests.system.server_process import RawClient, ServedProcess

from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

DUE_AFTER_MS: Final = 5_000
LATE_MS: Final = 5_000
"""A busy machine may take that long beyond."""

WHOLE_ANSWER: Final = ("msgId", "queueId", "queueOffset", "transactionId", "recallHandle")


class Repeats:
    """Sends with names, and what they were answered."""

    def __init__(self, run: EdgeRun) -> None:
        self.run = run
        self.due_ms = now_ms() + DUE_AFTER_MS
        self._uniq_keys = 0

    def properties(self, key: str, uniq_key: str = "") -> dict[str, str]:
        """Of one send. uniq_key: the one of the first attempt; a program that was restarted has another."""
        self._uniq_keys += 1
        return {
            "UNIQ_KEY": uniq_key or f"{self._uniq_keys:032X}", "ORBITMQ_SCOPE": "jobs", "ORBITMQ_EPOCH": "1",
            "ORBITMQ_ONCE_KEY": key,
        }  # fmt: skip

    def send(self, client: RawClient, topic: str, key: str, *, timed: bool = False) -> tuple[int, Command, str]:
        """A first send: its number, its answer and its unique key."""
        properties = self.properties(key)
        number, answer = self.run.traffic.send_one(client, topic, properties, due_ms=self.due_ms if timed else 0)
        self.run.expect(answer.code == 0, f"a first send of {key} was answered {answer.code} {answer.remark}")
        return number, answer, properties["UNIQ_KEY"]

    def repeat(
        self,
        client: RawClient,
        topic: str,
        key: str,
        number: int,
        first: Command,
        *,
        uniq_key: str = "",
        timed: bool = False,
    ) -> None:
        """The same send again has to get the first answer."""
        answer = self.run.traffic.repeat(
            client, topic, self.properties(key, uniq_key), number, due_ms=self.due_ms if timed else 0
        )
        self.run.account.answered("repeat", answer.code)
        for name in WHOLE_ANSWER:
            before, now = first.fields.get(name), answer.fields.get(name)
            self.run.expect(
                before == now, f"the repeat of {key} was answered with {name} {now}, the first send with {before}"
            )

    def recall(self, client: RawClient, topic: str, number: int, handle: str) -> None:
        answer = client.call(
            RequestCode.RECALL_MESSAGE, {"producerGroup": "jobs", "topic": topic, "recallHandle": handle}
        )
        self.run.account.answered("recall", answer.code)
        self.run.expect(
            answer.code == ResponseCode.SUCCESS or now_ms() >= self.due_ms,  # on a slow machine it has been delivered
            f"the recall of message {number} was answered {answer.code} {answer.remark}",
        )
        if answer.code == ResponseCode.SUCCESS:
            self.run.account.recalled.add(number)


def delete_topic(server: ServedProcess, topic: str) -> None:
    with RawClient(server.port) as client:
        answer = client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def repeats(run: EdgeRun) -> None:
    """A repeat gets the first answer, whole, and only while what it speaks of counts; a restart changes nothing."""
    server = run.start()
    for topic in ("orders", "gone"):
        server.create_topic(topic)
    sends = Repeats(run)
    with server.client() as client:
        plain, plain_answer, plain_key = sends.send(client, "orders", "plain")
        sends.repeat(client, "orders", "plain", plain, plain_answer, uniq_key=plain_key)
        sends.repeat(client, "orders", "plain", plain, plain_answer)
        timed, timed_answer, _ = sends.send(client, "orders", "timed", timed=True)
        sends.repeat(client, "orders", "timed", timed, timed_answer, timed=True)
        taken, taken_answer, taken_key = sends.send(client, "orders", "taken", timed=True)
        sends.recall(client, "orders", taken, taken_answer.fields["recallHandle"])
        sends.repeat(client, "orders", "taken", taken, taken_answer, uniq_key=taken_key, timed=True)
        sends.send(client, "orders", "taken", timed=True)  # a program that wants it again: it has to come
        sends.send(client, "gone", "in a deleted topic")
        run.traffic.read(client, "gone")
    ending = run.random.choice(["deleted, stopped", "stopped, deleted", "deleted, killed"])
    if ending.startswith("deleted"):
        delete_topic(server, "gone")
    if ending.endswith("killed"):
        server.kill()
    else:
        run.stop(server)
    server = run.start()
    if ending.endswith("deleted"):
        delete_topic(server, "gone")
    server.create_topic("gone")
    with server.client() as client:
        number, _, _ = sends.send(client, "gone", "in a deleted topic")
        run.traffic.read(client, "gone")
        run.expect(
            run.account.deliveries[number] == 1, "a send to the topic that was made again was answered from memory"
        )
        sends.repeat(client, "orders", "plain", plain, plain_answer)
        sends.repeat(client, "orders", "timed", timed, timed_answer, timed=True)
        if run.random.random() < 0.5:
            sends.recall(client, "orders", timed, timed_answer.fields["recallHandle"])

        if run.findings:  # the due time is not waited for
            run.account.excuse(run.account.missing())
            return
        end = run.traffic.read(client, "orders")
        while now_ms() < sends.due_ms + LATE_MS and run.account.missing():
            end = run.traffic.read(client, "orders", begin=end)
            time.sleep(0.05)
        time.sleep(0.2)  # for what should not come
        run.traffic.read(client, "orders", begin=end)
    run.say(f"the topic and the server: {ending}")
    run.stop(server)
