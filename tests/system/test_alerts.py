"""The alert rules as Prometheus reads them: without complaints, silent where nothing is wrong, and not where something is."""

from __future__ import annotations

import re
from pathlib import Path

from promtool import promtool

HERE = Path(__file__).parent
PROMETHEUS = HERE.parents[1] / "deploy" / "prometheus"


def test_prometheus_takes_rules_and_configuration() -> None:
    assert promtool("check", "rules", PROMETHEUS / "alerts.yml") == ""
    assert promtool("check", "config", PROMETHEUS / "prometheus.yml") == ""


def test_alerts_fire_when_something_is_wrong_and_not_for_a_restart() -> None:
    assert promtool("test", "rules", HERE / "alerts_test.yml") == ""


def test_each_alert_is_made_to_fire() -> None:
    rules, tests = (path.read_text(encoding="ascii") for path in (PROMETHEUS / "alerts.yml", HERE / "alerts_test.yml"))
    names = re.findall(r"- alert: (\w+)", rules)
    assert [name for name in names if not re.search(rf"\b{name}\b", tests)] == []


def test_a_rule_that_is_no_expression_is_complained_about(tmp_path: Path) -> None:
    broken = tmp_path / "alerts.yml"
    text = (PROMETHEUS / "alerts.yml").read_text(encoding="ascii")
    broken.write_text(text.replace("orbitmq_store_writable == 0", "orbitmq_store_writable =="), encoding="ascii")
    assert "parse error" in promtool("check", "rules", broken)
