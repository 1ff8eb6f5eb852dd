"""`orbitmq worker`: run the handlers of a module until the process is told to stop."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from orbitmq.cli.asking.cluster_access import client_options, target
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.instants import parse_span_ms
from orbitmq.limits.client import WORKER_END_S

if TYPE_CHECKING:
    from orbitmq.client.topic_handler import TopicHandler

logger = logging.getLogger("orbitmq.client")

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(cls=ClusterCommand)
def worker(
    place: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A handler (@orbitmq.handler), or a list of handlers.", show_default=False
        ),
    ],
    stop_within: Annotated[
        str, typer.Option("--stop-within", help="How long a stop waits for handlers that run: 30s, 5m.")
    ] = "30s",
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file", help="A file that is there from when the worker is ready to its end.", show_default=False
        ),
    ] = None,
    log_format: Annotated[str, typer.Option("--log-format", help="Form of the log lines: text or json.")] = "text",
) -> None:
    """Run handlers of a module, asynchronous or plain ones, until SIGTERM or Ctrl-C.

    The module is looked for in the working directory first. Exit code 0 after a stop in order, 7 where handlers were given up.
    """
    from orbitmq.telemetry.logs import begin_logging

    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"--log-format is {log_format!r}, neither text nor json")
    stop_within_ms = parse_span_ms("--stop-within", stop_within)
    begin_logging(log_format, ())
    with there_while_ready(ready_file) as make_file, SureEnd(stop_within_ms, ready_file) as end:

        def on_ready() -> None:
            end.watch_signals()
            if make_file is not None:
                make_file()

        handlers = handlers_at(place)
        cluster = target()
        settings: dict[str, Any] = {
            "name_servers": cluster.name_servers,
            "options": client_options(cluster),
            "stop_within_ms": stop_within_ms,
            "on_ready": on_ready,
        }
        if handlers[0].is_asynchronous:
            import asyncio

            from orbitmq.client import serve

            in_order = asyncio.run(serve(*handlers, **settings))
        else:
            from orbitmq import sync

            in_order = sync.serve(*handlers, **settings)
    if not in_order:
        raise typer.Exit(ExitCode.GIVEN_UP)


class SureEnd:
    """Ends the process where a stop does not: a handler with `async def` that blocks holds the loop, and with it the stop."""

    def __init__(self, stop_within_ms: int, ready_file: Path | None) -> None:
        self._waits_s = [stop_within_ms / 1000 + WORKER_END_S, WORKER_END_S]
        """After the first signal, and after the second."""
        self._ready_file = ready_file
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def watch_signals(self) -> None:
        """Hear them before those who heed them now."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, partial(self._hear, signal.getsignal(number)))

    def _hear(self, heeded: Any, number: int, frame: FrameType | None) -> None:
        if self._waits_s:
            timer = threading.Timer(self._waits_s.pop(0), self._end)
            timer.daemon = True
            self._timers.append(timer)
            timer.start()
        if callable(heeded):
            heeded(number, frame)

    def _end(self) -> None:
        logger.error(
            "the worker ends all the same: a handler blocks it, or takes no cancellation; "
            "messages that are not written as done are delivered again"
        )
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        os._exit(ExitCode.GIVEN_UP)


def handlers_at(place: str) -> list[TopicHandler]:
    """The handlers that `module:name` names. ConfigurationError where there are none."""
    from orbitmq.client.topic_handler import check_handlers
    from orbitmq.errors import ConfigurationError

    module_name, colon, name = place.partition(":")
    if not colon or not module_name or not name:
        raise ConfigurationError(f"{place!r} is not of the form module:name", remedy="for example shop.billing:charge")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise  # what the module itself imports
        raise ConfigurationError(
            f"there is no module {module_name!r} here or on the path", remedy="start it where the module is"
        ) from error
    if not hasattr(module, name):
        raise ConfigurationError(f"module {module_name} has no {name!r}")
    found = getattr(module, name)
    handlers = list(found) if isinstance(found, list | tuple) else [found]
    return list(check_handlers(handlers, asynchronous=bool(handlers) and getattr(handlers[0], "is_asynchronous", True)))


@contextmanager
def there_while_ready(file: Path | None) -> Iterator[Callable[[], object] | None]:
    """Gives what to call when the worker is ready. A file of a worker that was killed says nothing of this one."""
    if file is not None:
        file.unlink(missing_ok=True)
    try:
        yield None if file is None else file.touch
    finally:
        if file is not None:
            file.unlink(missing_ok=True)
