"""The HTTP port of a service: `/livez`, `/readyz` and `/metrics`.

Rules of this file
1. `/livez` is 200 while Spark can be used or is being started: whoever sees 503 starts the service again. `/readyz` is 503 with the reasons
   while nothing gets done. One part that fails among others that work is named there, and keeps it ready.
2. Clients are bounded in number and in patience. Where there are too many, the oldest makes room, so that slow ones keep no probe out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from orbitmq.errors import ConfigurationError, PortTakenError
from orbitmq.limits.spark import (
    SERVICE_HTTP_PAUSE_S,
    SERVICE_HTTP_REQUESTS_MAX,
    SERVICE_HTTP_ROOM_S,
    SERVICE_HTTP_TIMEOUT_S,
    SERVICE_HTTP_WAITING_MAX,
)
from orbitmq.spark.pipelines.serving.figures import ServiceFigures, ServiceState
from orbitmq.telemetry.exposition import chosen_format
from orbitmq.telemetry.registry import Registry

logger = logging.getLogger("orbitmq.service")

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


class HealthPort:
    """Serves from its making until `close`. PortTakenError, or ConfigurationError where the host is none of this machine."""

    def __init__(self, address: tuple[str, int], name: str, figures: ServiceFigures) -> None:
        registry = Registry((("service", name),))
        registry.add(figures.families)
        handler = type("Handler", (_Handler,), {"figures": figures, "registry": registry})
        host, port = address
        server_type = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
        try:
            self._server = server_type(address, handler)
        except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
            problem = f"the service cannot listen on {host}:{port}"
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                raise PortTakenError(
                    f"{problem}: the port is taken", remedy="stop the program that holds it, or give another http"
                ) from error
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"{problem}: {why}", remedy="correct http") from error
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = SERVICE_HTTP_WAITING_MAX

    def __init__(self, *given: Any) -> None:
        self._room = threading.BoundedSemaphore(SERVICE_HTTP_REQUESTS_MAX)
        self._served: dict[Any, None] = {}
        """Connections, the oldest first."""
        super().__init__(*given)

    server_bind = TCPServer.server_bind
    """Without the look for the host's full name, which waits for a name server that is away."""

    def get_request(self) -> Any:
        """The next connection. Where none can be had, as without descriptors, the loop that asks again at once would take a core."""
        try:
            return super().get_request()
        except OSError:
            threading.Event().wait(SERVICE_HTTP_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._break_off_oldest()
            if not self._room.acquire(timeout=SERVICE_HTTP_ROOM_S):
                self.shutdown_request(request)
                return
        self._served[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._left(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._left(request)

    def _break_off_oldest(self) -> None:
        with contextlib.suppress(StopIteration, RuntimeError, OSError):  # one that ends at this moment
            next(iter(self._served)).shutdown(socket.SHUT_RDWR)

    def _left(self, request: Any) -> None:
        self._served.pop(request, None)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is none of our business."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("a request of the HTTP port was not answered: %s", error, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    timeout = SERVICE_HTTP_TIMEOUT_S
    figures: ServiceFigures
    registry: Registry

    def do_GET(self) -> None:
        figures = self.figures
        match self.path.partition("?")[0]:
            case "/livez":
                lives = figures.spark_up or figures.state is not ServiceState.SERVING
                self._answer(
                    200 if lives else 503, _JSON, json.dumps({"status": "alive" if lives else "no Spark"}) + "\n"
                )
            case "/readyz":
                ready, facts = figures.readiness()
                self._answer(200 if ready else 503, _JSON, json.dumps(facts) + "\n")
            case "/metrics":
                form = chosen_format(self.headers.get("Accept", ""))
                self._answer(200, form.value, "".join(self.registry.pieces(form)))
            case _:
                self._answer(404, _TEXT, "served here: /livez, /readyz, /metrics\n")

    def _answer(self, code: int, kind: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *words: Any) -> None:
        """Probes and scrapes are no news."""
