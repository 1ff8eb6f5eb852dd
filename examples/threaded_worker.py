"""Hand work from threads to threads, without asyncio.

    orbitmq serve --data /tmp/orbitmq &
    python examples/threaded_worker.py [name-server]

Four threads, standing for the threads of a web server, send jobs through one client. A consumer runs plain functions on a bounded
number of threads; a job that fails is delivered again later, a job that never succeeds becomes a dead letter.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import orbitmq.sync

TOPIC = "Thumbnails"
GROUP = "thumbnail-makers"
JOBS = 40


def send_jobs(mq: orbitmq.sync.Client) -> list[orbitmq.sync.SendReceipt]:
    with ThreadPoolExecutor(4) as web:
        return list(web.map(lambda number: mq.send(TOPIC, b"picture %d" % number, key=f"p{number}"), range(JOBS)))


def work(consumer: orbitmq.sync.Consumer) -> Counter[str]:
    done: Counter[str] = Counter()
    one_at_a_time = threading.Lock()

    def make_thumbnail(message: orbitmq.sync.ReceivedMessage) -> None:
        if message.body.endswith(b"7") and message.reconsume_times == 0:
            message.retry(delay_level=1)  # a second later; raising would do the same after ten
            outcome = "tried again later"
        else:
            outcome = "done"
        with one_at_a_time:
            done[outcome] += 1
            if done["done"] == JOBS:
                consumer.stop()

    consumer.run(make_thumbnail, concurrency=8)
    return done


def main(name_server: str) -> None:
    options = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST)
    with orbitmq.sync.connect(name_server) as mq:
        receipts = send_jobs(mq)
        print(f"{len(receipts)} jobs sent to {len({receipt.queue for receipt in receipts})} queues")
        with mq.consumer(GROUP, TOPIC, options=options) as consumer:
            for outcome, count in sorted(work(consumer).items()):
                print(f"{outcome:18}{count:4}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876")
