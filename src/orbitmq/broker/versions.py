"""The version that a configuration table carries: how readers of a copy learn that it is out of date.

Source: RocketMQ data version (counter, state version, timestamp).
"""

from __future__ import annotations

from orbitmq.protocol.remoting.bodies import DataVersion


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after one change. The counter decides between changes of the same millisecond."""
    return DataVersion(counter=version.counter + 1, state_version=version.state_version, timestamp=now_ms)
