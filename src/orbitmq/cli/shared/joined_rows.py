"""What several brokers say, as one list: each row once, with the brokers that have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


def joined(by_broker: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows in the order in which they are met. Where brokers differ about something there is a row for each of its forms."""
    rows: dict[bytes, dict[str, Any]] = {}
    for broker, found in by_broker.items():
        for row in found:
            rows.setdefault(msgspec.json.encode(row), {**row, "brokers": []})["brokers"].append(broker)
    return list(rows.values())
