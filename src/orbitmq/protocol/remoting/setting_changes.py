"""What our servers add to RocketMQ's requests that read and change settings: a change can be forgotten, and what counts without it is told.

A broker tells it in its runtime information. A name server has none: there it stands among the settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orbitmq.protocol.java_properties import read_properties

UNSET_KEY: Final = "orbitmq.unset"
"""Names keys, `;` between, in a change by request: what was changed while running is forgotten. No key of RocketMQ's."""

FACT_PREFIX: Final = "orbitmqChanged_"
"""Before the name of a changed key: what counts without the change, and where that stands."""

CHANGED_KEYS: Final = "orbitmqChanged"
"""Of a name server: every key that was changed, `;` between. It is always there, so it also tells that the server knows `UNSET_KEY`."""


def names_in(text: str) -> list[str]:
    """The names that `names_text` joined, each once; empty ones are passed over."""
    return list(dict.fromkeys(name.strip() for name in text.split(";") if name.strip()))


def names_text(names: Iterable[str]) -> str:
    return ";".join(names)


def asked_keys(body: bytes | bytearray | memoryview) -> str:
    """`keys=` and the keys that a change of settings by request names, without their values: one may be a secret. ConfigurationError for a
    body that cannot be read."""
    wanted = read_properties(bytes(body), where="request")
    forgotten = names_in(wanted.pop(UNSET_KEY, ""))
    said = [f"keys={','.join(wanted)}"] if wanted else []
    return " ".join([*said, f"unset={','.join(forgotten)}"] if forgotten else said)
