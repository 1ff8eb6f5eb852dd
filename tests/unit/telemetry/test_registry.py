"""All metrics as one text, whatever a collector does."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read

from orbitmq.telemetry import catalogue
from orbitmq.telemetry.exposition import Format
from orbitmq.telemetry.metric import Family, one
from orbitmq.telemetry.registry import Registry


def values(registry: Registry) -> dict[str, float]:
    text = "".join(registry.pieces(Format.OPENMETRICS))
    return {sample.name: sample.value for family in read(text) for sample in family.samples}


def test_collectors_follow_each_other() -> None:
    registry = Registry([("cluster", "c")])
    registry.add(lambda: iter([one(catalogue.TOPIC_NUMBER, 3)]))
    registry.add(lambda: iter([one(catalogue.BUSY, 4)]))
    found = values(registry)
    assert found["rocketmq_topic_number"] == 3
    assert found["orbitmq_busy_answers_total"] == 4
    assert found["orbitmq_scrapes_total"] == 1


def test_who_a_process_is_may_be_known_later() -> None:
    registry = Registry([("cluster", ""), ("node_id", "n")])
    registry.add(lambda: iter([one(catalogue.TOPIC_NUMBER, 3)]))
    for cluster in ("", "c"):
        text = "".join(registry.pieces(Format.OPENMETRICS))
        assert f'rocketmq_topic_number{{cluster="{cluster}",node_id="n"}} 3' in text
        registry.identify("cluster", "c")


def test_a_collector_that_fails_loses_its_own_metrics_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Family]:
        yield one(catalogue.GROUP_NUMBER, 1)
        raise RuntimeError("a defect")

    registry = Registry([])
    registry.add(broken)
    registry.add(lambda: iter([one(catalogue.TOPIC_NUMBER, 3)]))
    with caplog.at_level(logging.ERROR):
        found = values(registry)
    assert found["rocketmq_topic_number"] == 3
    assert found["rocketmq_consumer_group_number"] == 1, "what it gave before it failed"
    assert found["orbitmq_scrape_failures_total"] == 1
    assert "could not be read" in caplog.text
