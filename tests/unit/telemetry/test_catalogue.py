"""The table of metrics keeps its conventions."""

from __future__ import annotations

import re

import pytest

from orbitmq.telemetry.catalogue import ALL, CONSTANT_LABELS, RESERVED_LABELS
from orbitmq.telemetry.metric import Metric, MetricKind

USER_LABELS = {"topic", "consumer_group"}


def test_names_are_given_once() -> None:
    names = [metric.name for metric in ALL]
    assert len(names) == len(set(names))
    families = [name.removesuffix("_total") for name in names]
    assert len(families) == len(set(families)), "OpenMetrics would see one family twice"


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_is_well_described(metric: Metric) -> None:
    assert re.fullmatch(r"(rocketmq|orbitmq|process)_[a-z0-9_]+", metric.name)
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert metric.help.endswith(".")
    assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("_total")
    assert not metric.name.endswith(("_bucket", "_sum", "_count"))
    assert not {"le", *CONSTANT_LABELS} & set(metric.labels)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_labels_that_users_choose_are_bounded(metric: Metric) -> None:
    assert bool(USER_LABELS & set(metric.labels)) == (metric.fold is not None)


def test_an_operators_own_labels_collide_with_none() -> None:
    assert {"le", "cluster", "topic", "node_id"} <= RESERVED_LABELS
