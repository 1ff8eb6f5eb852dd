"""Dashboard and alert rules: they parse, and ask for nothing that the table of metrics does not have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from watched_metrics import Asked, alert_expressions, dashboard_expressions, names_in

from orbitmq.spark.pipelines.serving.figures import SERVICE_METRICS
from orbitmq.telemetry.catalogue import ALL, CONSTANT_LABELS
from orbitmq.telemetry.metric import MetricKind

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "orbitmq.json").read_text(encoding="utf-8"))
    return loaded


def rules() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    return loaded


EXPRESSIONS = [*dashboard_expressions(dashboard()), *alert_expressions(rules())]


def known_samples() -> dict[str, set[str]]:
    """Name of a sample -> its labels."""
    known = {}
    for metric in (*ALL, *SERVICE_METRICS):
        ends = ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
        constant = {"service"} if metric in SERVICE_METRICS else CONSTANT_LABELS
        for end in ends:
            known[metric.name + end] = {*metric.labels, *constant, *ADDED_BY_PROMETHEUS}
    return known


def problems(expression: str) -> list[str]:
    asked, known = names_in(expression), known_samples()
    unknown = [f"no metric {name}" for name in sorted(asked.metrics - known.keys())]
    labels = set().union(*(known[name] for name in asked.metrics & known.keys()), ADDED_BY_PROMETHEUS)
    return unknown + [f"no label {label} on {sorted(asked.metrics)}" for label in sorted(asked.labels - labels)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_exists(expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(orbitmq_no_such_thing_total[5m])", "no metric orbitmq_no_such_thing_total"),
        ("orbitmq_delay_lateness_seconds", "no metric orbitmq_delay_lateness_seconds"),
        ('rocketmq_topic_number{topic="x"}', "no label topic on ['rocketmq_topic_number']"),
        ('orbitmq_pipeline_failing{node_id="x"}', "no label node_id on ['orbitmq_pipeline_failing']"),
        ("sum by (grupe) (rocketmq_consumer_lag_messages)", "no label grupe on ['rocketmq_consumer_lag_messages']"),
    ],
)
def test_a_planted_mistake_is_found(expression: str, problem: str) -> None:
    assert problems(expression) == [problem]


@pytest.mark.parametrize("expression", ["sum(rate(x_total[5m])", "x{topic=orders}", 'x{topic="a" group="b"}', "x{"])
def test_an_expression_that_is_none_is_found(expression: str) -> None:
    with pytest.raises(ValueError, match=r"unbalanced|matcher"):
        names_in(expression)


def test_names_are_read_out_of_expressions() -> None:
    text = 'histogram_quantile(0.99, sum by (le, node_id) (rate(a_bucket{topic=~"x|y",b!="{}"}[5m]))) > 1e9 and on (c) d < 2'
    assert names_in(text.replace("{}", "")) == Asked({"a_bucket", "d"}, {"le", "node_id", "topic", "b", "c"})


def test_every_rule_is_whole_and_its_runbook_exists() -> None:
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", operations, flags=re.MULTILINE)
    }
    names = []
    for group in rules()["groups"]:
        for rule in group["rules"]:
            names.append(rule["alert"])
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
            assert rule["annotations"]["summary"], rule["alert"]
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert page == "docs/operations.md"
            assert anchor in anchors, f"{rule['alert']}: no section {anchor} in docs/operations.md"
    assert len(names) == len(set(names)) > 15


def test_the_example_of_a_scrape_names_the_default_port_and_the_rules() -> None:
    from orbitmq.server.configuration.settings import DEFAULT_HTTP_PORT

    example = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    assert example["rule_files"] == ["alerts.yml"]
    from orbitmq.spark.pipelines.serving.service_file import ServiceSettings

    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in example["scrape_configs"]}
    assert targets == {"orbitmq": [f"127.0.0.1:{DEFAULT_HTTP_PORT}"], "orbitmq-pipeline": [ServiceSettings.http]}


def test_the_dashboard_has_a_row_for_each_question() -> None:
    panels = dashboard()["panels"]
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Traffic", "Delays", "Storage", "Consumers", "Health", "Far tier", "Copies", "Pipelines"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert at["x"] + at["w"] <= 24
        taken |= cells
