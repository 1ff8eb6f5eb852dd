"""Dead letters go back to their topic when the cause is mended: first a dry run, then those of the outage, at a rate.

    orbitmq serve --data /tmp/orbitmq &
    python examples/spark/redrive_dead_letters.py [name-server]

The same as `orbitmq pipeline redrive --group invoicing --tag card --rate 500 [--dry-run]`. Each `# %%` is a cell.
"""

# %% A consumer gives up on thirty payments.
from __future__ import annotations

import sys
import threading

import orbitmq.spark
import orbitmq.sync
from orbitmq.spark import pipelines

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"
TOPIC, GROUP = "CardPayments", "invoicing"
COUNT = 30

spark = orbitmq.spark.session(app_name="redrive-dead-letters")
options = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST)
with orbitmq.sync.connect(NAME_SERVER) as mq:
    for number in range(COUNT):
        mq.send(TOPIC, b"payment %d" % number, tag="cash" if number % 3 == 0 else "card", key=f"p{number}")
    given_up, one_at_a_time = [], threading.Lock()
    with mq.consumer(GROUP, TOPIC, options=options) as consumer:

        def give_up(message: orbitmq.sync.ReceivedMessage) -> None:
            message.dead_letter()
            with one_at_a_time:
                given_up.append(message.keys)
                if len(given_up) == COUNT:
                    consumer.stop()

        consumer.run(give_up)
print(len(given_up), "dead letters")

# %% What would go, and where to.
dry = pipelines.redrive(spark, group=GROUP, name_server=NAME_SERVER, tag=["card"], dry_run=True)
print({name: value for name, value in dry.details.items() if name.startswith("would go to")})

# %% Now for real, not faster than the card service likes.
summary = pipelines.redrive(spark, group=GROUP, name_server=NAME_SERVER, tag=["card"], rate=500)
print(f"{summary.rows_written} sent again, {summary.rows_skipped} passed over")

# %% Run again it goes on where it ended: there is nothing left.
again = pipelines.redrive(spark, group=GROUP, name_server=NAME_SERVER, tag=["card"], rate=500)
print(f"{again.rows_written} sent again the second time")
