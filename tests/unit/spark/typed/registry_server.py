"""A schema registry of one process, with the part of the protocol that readers and writers use, and troubles on request."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class RegistryServer:
    """`register` gives a schema to a subject; `trouble` is what every request gets instead of an answer: a status, or bytes."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.trouble: int | bytes | None = None
        self.requests: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                self._answer(*registry.answer(urlsplit(self.path).path.strip("/").split("/"), None))

            def do_POST(self) -> None:
                registry.requests.append(self.path)
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._answer(*registry.answer(urlsplit(self.path).path.strip("/").split("/"), body))

            def _answer(self, status: int, content: Any) -> None:
                text = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def register(
        self, subject: str, text: str, references: list[dict[str, Any]] | None = None, kind: str = "AVRO"
    ) -> int:
        """The id of the schema; it is 100 more than the number of schemas so far."""
        versions = self.subjects.setdefault(subject, [])
        schema_id = 101 + sum(len(one) for one in self.subjects.values())
        about = {"subject": subject, "version": len(versions) + 1, "id": schema_id, "schemaType": kind}
        versions.append({**about, "schema": text, "references": references or []})
        return schema_id

    def answer(self, path: list[str], body: Any) -> tuple[int, Any]:
        if isinstance(self.trouble, int):
            return self.trouble, {"error_code": self.trouble, "message": "trouble"}
        if self.trouble is not None:
            return 200, self.trouble
        versions = self.subjects.get(path[1] if len(path) > 1 else "", [])
        if len(path) == 2 and body is not None:
            found = [one for one in versions if json.loads(one["schema"]) == json.loads(body["schema"])]
            return (200, found[0]) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if len(path) == 3 and versions:
            return 200, [one["version"] for one in versions]
        if len(path) == 4 and path[3].isdigit() and 0 < int(path[3]) <= len(versions):
            return 200, versions[int(path[3]) - 1]
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
