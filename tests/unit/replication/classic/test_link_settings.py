"""Settings of a link that do not go together."""

from __future__ import annotations

import pytest

from orbitmq.replication.classic.link_settings import LinkSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_bytes": 7}, "from 8 to 4194292 bytes"),
        ({"batch_bytes": 4_194_293}, "from 8 to"),
        ({"body_bytes_max": 4_194_293}, "from 8 to"),
        ({"window_bytes": 1 << 20}, "less than the largest transfer"),
        ({"heartbeat_ms": 20_000}, "does not end a silence"),
        ({"rate_bytes_per_s": 0}, "sends nothing"),
        ({"heartbeat_ms": 0}, "does not end a silence"),
    ],
)
def test_refused(settings: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LinkSettings(**settings)


def test_rocketmq_s_values() -> None:
    settings = LinkSettings()
    assert (settings.batch_bytes, settings.heartbeat_ms, settings.silence_ms) == (32_768, 5_000, 20_000)
