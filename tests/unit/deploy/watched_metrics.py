"""What the dashboard and the alert rules ask Prometheus for: metric and label names, taken out of their expressions.

Not a parser of PromQL: a reader of names, with brackets checked. Whatever is a name and neither a function, a keyword nor
a label is a metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

WORDS = {
    "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "and", "or", "unless",
    "sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "stddev",
    "rate", "increase", "irate", "delta", "changes", "predict_linear", "histogram_quantile", "abs", "time", "absent",
    "max_over_time", "min_over_time", "avg_over_time", "label_values", "clamp_max", "clamp_min", "vector", "scalar",
}  # fmt: skip
OF_PROMETHEUS = {"up"}
"""Metrics that Prometheus makes itself."""

GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
SELECTOR = re.compile(r"\{([^{}]*)\}")
MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*(?:,|$)')
DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+\d+[smhdw]")
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
NUMBER = re.compile(r"(?<![a-zA-Z_:])\d+(?:\.\d+)?(?:e\d+)?")


class Asked(NamedTuple):
    """Names in one expression."""

    metrics: set[str]
    labels: set[str]


def names_in(expression: str) -> Asked:
    """ValueError when brackets do not match or a selector cannot be read."""
    for opening, closing in ("()", "[]", "{}"):
        if expression.count(opening) != expression.count(closing):
            raise ValueError(f"unbalanced {opening}{closing}: {expression}")
    labels: set[str] = set()
    rest = expression
    for found in SELECTOR.finditer(expression):
        position, text = 0, found[1]
        while position < len(text):
            matcher = MATCHER.match(text, position)
            if matcher is None:
                raise ValueError(f"no label matcher: {text[position:]!r} in {expression}")
            labels.add(matcher[1])
            position = matcher.end()
    rest = SELECTOR.sub(" ", rest)
    for found in GROUPING.finditer(rest):
        labels |= {label.strip() for label in found[1].split(",") if label.strip()}
    rest = DURATION.sub(" ", GROUPING.sub(" ", rest))
    if label_values := re.fullmatch(r"\s*label_values\((.*),\s*(\w+)\)\s*", rest):
        labels.add(label_values[2])
        rest = label_values[1]
    rest = NUMBER.sub(" ", rest)
    return Asked(set(NAME.findall(rest)) - WORDS - OF_PROMETHEUS, labels)


def dashboard_expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def alert_expressions(rules: dict[str, Any]) -> Iterator[str]:
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
