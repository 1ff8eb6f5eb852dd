"""What the HTTP port answers: `/metrics`, `/healthz`, `/readyz`.

Rules of this file
1. `/healthz` says that the process lives and its loop turns; it is 200 or silence. `/readyz` says whether clients should
   come: 503 with every reason why not, as JSON. What is wrong and keeps no client away are remarks beside it.
2. A scrape goes on in slices; between two of them requests of clients are handled. Scrapes that come together share one
   text.
3. Old records are read on the store's thread, never here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.clock import Clock
from orbitmq.limits.server import SCRAPE_PAUSE_MS, SCRAPE_SLICE_MS
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpRequest
from orbitmq.telemetry.exposition import Format, chosen_format
from orbitmq.telemetry.registry import Registry

logger = logging.getLogger("orbitmq.server.http")

JSON: Final = "application/json"
PIECES_BETWEEN_LOOKS: Final = 16
"""Pieces of a scrape between two looks at the clock: about 0.1 ms."""

PATHS: Final = ("/metrics", "/healthz", "/readyz")


class UnreadyReason(NamedTuple):
    """Why clients should not come now: a stable word and a sentence."""

    reason: str
    text: str


Readiness = Callable[[], Sequence[UnreadyReason]]
"""What stands against a part's readiness; empty when nothing does."""

Preparation = Callable[[], Awaitable[None]]
"""What a scrape needs before its text is made."""


class Watching:
    """The answers of one process."""

    def __init__(self, registry: Registry, clock: Clock, *, metrics: bool = True) -> None:
        """`metrics` false: `/metrics` answers 404, as `metricsExporterType=DISABLE` asks."""
        self.registry = registry
        self.preparations: list[Preparation] = []
        self.readiness: list[Readiness] = []
        self.remarks: list[Readiness] = []
        """What is wrong and keeps no client away: told by `/readyz` beside whatever it answers."""
        self.figures: list[Callable[[], Mapping[str, object]]] = []
        """What `/readyz` tells besides, for `orbitmq doctor`."""
        self.certificate: CertificateFiles | None = None
        """The certificate of the ports, whose end `/readyz` tells. It is no reason against readiness: plain connections go on."""
        self._clock = clock
        self._metrics = metrics
        self._started_ns = clock.monotonic_ns()
        self._last_scrape_ns: int | None = None
        self._stopping = False
        self._scraping: dict[Format, asyncio.Task[bytes]] = {}

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics" if self._metrics and self._stopping:
                return HttpAnswer(503, "text/plain; charset=utf-8", b"the process is shutting down\n")
            case "/metrics" if self._metrics:
                form = chosen_format(request.accept)
                return HttpAnswer(200, form.value, await self._shared_scrape(form))
            case "/healthz":
                return await self._health()
            case "/readyz":
                return self._ready()
            case _:
                served = [path for path in PATHS if self._metrics or path != "/metrics"]
                return HttpAnswer(404, "text/plain; charset=utf-8", f"served here: {', '.join(served)}\n".encode())

    # --- health -----------------------------------------------------------------------------------------------------

    async def _health(self) -> HttpAnswer:
        before_ns = self._clock.monotonic_ns()
        await asyncio.sleep(0)
        now_ns = self._clock.monotonic_ns()
        facts = {
            "status": "alive",
            "uptimeSeconds": (now_ns - self._started_ns) // 1_000_000_000,
            "loopTurnMillis": round((now_ns - before_ns) / 1e6, 3),
        }
        return HttpAnswer(200, JSON, msgspec.json.encode(facts) + b"\n")

    def reasons(self) -> list[UnreadyReason]:
        """Everything that stands against readiness."""
        return [reason for part in self.readiness for reason in part()]

    def _ready(self) -> HttpAnswer:
        reasons = self.reasons()
        facts: dict[str, object] = {"status": "not ready" if reasons else "ready"}
        if reasons:
            facts["reasons"] = [reason._asdict() for reason in reasons]
        if remarks := [remark._asdict() for part in self.remarks for remark in part()]:
            facts["remarks"] = remarks
        for figures in self.figures:
            facts.update(figures())
        if self.certificate is not None:
            facts["certificateExpirySeconds"] = self.certificate.left_ms // 1_000
        return HttpAnswer(503 if reasons else 200, JSON, msgspec.json.encode(facts) + b"\n")

    # --- metrics ----------------------------------------------------------------------------------------------------

    async def _shared_scrape(self, form: Format) -> bytes:
        """The text of the scrape under way, or of a new one; it goes on when one of those who wait leaves."""
        task = self._scraping.get(form)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._scrape(form), name="scrape")
            self._scraping[form] = task
            task.add_done_callback(lambda _: self._scraping.pop(form, None))
        return await asyncio.shield(task)

    async def _scrape(self, form: Format) -> bytes:
        now_ns = self._clock.monotonic_ns()
        if self._last_scrape_ns is not None:
            pause_ns = self._last_scrape_ns + SCRAPE_PAUSE_MS * 1_000_000 - now_ns
            self._last_scrape_ns = now_ns + max(pause_ns, 0)
            if pause_ns > 0:
                await asyncio.sleep(pause_ns / 1e9)
        else:
            self._last_scrape_ns = now_ns
        for prepare in self.preparations:
            try:
                await prepare()
            except Exception:
                self.registry.failures += 1
                logger.exception("what a scrape needs could not be had")
        pieces: list[str] = []
        await self.in_slices(_collected(self.registry.pieces(form), pieces))
        return "".join(pieces).encode("utf-8", "replace")

    def stop(self) -> None:
        """What is watched is about to go: no scrape reads it any longer."""
        self._stopping = True
        for task in self._scraping.values():
            task.cancel()

    async def in_slices(self, steps: Iterator[None]) -> None:
        """Run `steps` to their end and hold the loop for about `SCRAPE_SLICE_MS` at a time."""
        slice_ns = SCRAPE_SLICE_MS * 1_000_000
        until_ns = self._clock.monotonic_ns() + slice_ns
        for number, _ in enumerate(steps, start=1):
            if number % PIECES_BETWEEN_LOOKS == 0 and self._clock.monotonic_ns() >= until_ns:
                await asyncio.sleep(0)
                until_ns = self._clock.monotonic_ns() + slice_ns


def _collected(pieces: Iterable[str], into: list[str]) -> Iterator[None]:
    for piece in pieces:
        into.append(piece)
        yield
