"""Metrics of POP: RocketMQ's, about the parts that stand here where its buffers and revive threads do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orbitmq.broker.pop.figures import PopCount
from orbitmq.broker.pop.pops import Pops
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Metric, Sample, by_label, one


class PopMetrics:
    """The collector of one broker's pops."""

    def __init__(self, pops: Pops) -> None:
        self._pops = pops

    def __call__(self) -> Iterator[Family]:
        pops, figures = self._pops, self._pops.figures
        yield _counted(catalogue.POP_REVIVE_IN, figures.stored)
        yield _counted(catalogue.POP_REVIVE_OUT, figures.read)
        yield _counted(catalogue.POP_RETRIED, figures.returned)
        behind = [] if pops.revive_topic is None else pops.revive_topic.behind()
        yield by_label(catalogue.POP_REVIVE_LAG, [(str(one.queue_id), one.records) for one in behind])
        yield by_label(catalogue.POP_REVIVE_LATENCY, [(str(one.queue_id), one.late_ms) for one in behind])
        yield one(catalogue.POP_MESSAGES, pops.in_flight.message_count)
        yield one(catalogue.POP_UNSTORED, 0 if pops.checkpoints is None else pops.checkpoints.unstored_count)
        yield by_label(
            catalogue.POP_RENEWALS,
            [
                ("renewed", figures.renewed_count),
                ("not_held", figures.not_renewed_count),
                ("given_up", figures.given_up_count),
            ],
        )
        yield by_label(
            catalogue.POP_GIVEN_BACK, [("client", figures.client_gone_count), ("call", figures.call_lost_count)]
        )
        yield one(catalogue.POP_STORING_TIME, figures.storing_ms.buckets())


def _counted(metric: Metric, counter: Counter[PopCount]) -> Family:
    return Family(metric, [Sample((one.group, one.topic, *one.labels), count) for one, count in [*counter.items()]])
