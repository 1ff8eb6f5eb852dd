"""All metrics of a process, as one text made piece by piece.

Rules of this file
1. A collector that fails loses its own metrics of this scrape only: it is logged, counted, and the count is shown.
2. Every piece is small; whoever drives the iteration lets other work through between two of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from orbitmq.telemetry.catalogue import FOLDED_SERIES, SCRAPE_FAILURES, SCRAPES
from orbitmq.telemetry.exposition import END_OF_OPENMETRICS, Format, lines
from orbitmq.telemetry.metric import Bounded, Collector, Family, by_label, one

logger = logging.getLogger("orbitmq.telemetry")


class Registry:
    """The collectors of a process and the labels that stand on every sample."""

    def __init__(self, constant: Sequence[tuple[str, str]]) -> None:
        self._constant = dict(constant)
        self._collectors: list[Collector] = []
        self.scrapes = 0
        self.failures = 0

    def identify(self, label: str, value: str) -> None:
        """Give one of the labels of every sample another value, from the next scrape on."""
        self._constant[label] = value

    def add(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def pieces(self, form: Format) -> Iterator[str]:
        """The text of one scrape. Costs about 3 us a sample."""
        self.scrapes += 1
        bounded = Bounded()
        constant = tuple(self._constant.items())
        for collector in self._collectors:
            try:
                for family in collector():
                    yield from lines(family.metric, bounded.samples(family), constant, form)
            except Exception:
                self.failures += 1
                logger.exception("metrics of %r could not be read", collector)
        for family in self._own(bounded):
            yield from lines(family.metric, family.samples, constant, form)
        if form is Format.OPENMETRICS:
            yield END_OF_OPENMETRICS

    def _own(self, bounded: Bounded) -> Iterator[Family]:
        yield one(SCRAPES, self.scrapes)
        yield one(SCRAPE_FAILURES, self.failures)
        yield by_label(FOLDED_SERIES, [(name, count) for name, count in sorted(bounded.folded.items())])
