"""The properties of one message on its way into the store: what the sender wrote and what the broker adds.

Rules of this file
1. Reading follows the tolerant rules of `protocol.properties`. A text that needs no tolerance can be stored as it is.
2. Broker properties win over the sender's: MSG_REGION, TRACE_ON and CLUSTER are ours, POP_CK and our own properties never
   come from a client.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.properties import Property, encode_properties

OVERRIDDEN: Final = frozenset({Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER})
DROPPED: Final = frozenset(
    {
        Property.POP_CK,
        Property.DUE_MS,
        Property.LEFT_MS,
        Property.REAL_UNIQ_KEY,
        Property.RUN,
        Property.FAR,
        Property.FAR_TABLE,
    }
)
TIMERS: Final = frozenset({Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS})

NEEDS_THOUGHT: Final = (
    OVERRIDDEN | DROPPED | TIMERS | frozenset({Property.DELAY, Property.TRAN_MSG, Property.INNER_NUM})
)
"""A message with none of these is stored as sent, with the broker's own properties behind."""


def is_true(text: str | None) -> bool:
    """Java's reading of a boolean: `true` in any case."""
    return text is not None and (text == "true" or text.lower() == "true")


def waits_for_flush(values: dict[str, str]) -> bool:
    """Whether the sender waits for flush and replication; absent means yes."""
    wait = values.get(Property.WAIT)
    return wait is None or is_true(wait)


class BrokerProperties:
    """What this broker adds to every message."""

    def __init__(self, region: str, trace_on: bool, cluster: str) -> None:
        self.values: Final = {
            Property.MSG_REGION: region,
            Property.TRACE_ON: "true" if trace_on else "false",
            Property.CLUSTER: cluster,
        }
        self.encoded: Final = encode_properties(self.values)

    def complete(self, values: dict[str, str]) -> dict[str, str]:
        """A sender's properties with ours in place and without what clients may not set. The argument is not changed."""
        completed = {name: value for name, value in values.items() if name not in DROPPED}
        completed.update(self.values)
        return completed


def without_timers(values: dict[str, str]) -> dict[str, str]:
    """Properties without a wish for a time; the same object when there is none."""
    if TIMERS.isdisjoint(values):
        return values
    return {name: value for name, value in values.items() if name not in TIMERS}
