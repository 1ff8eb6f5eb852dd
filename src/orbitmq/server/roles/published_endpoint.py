"""Where a broker serves gRPC, published in the key-value table of its name servers for the routes of other brokers.

Rules of this file
1. What stands there already is not written again: RocketMQ's name server writes its whole file for each change.
2. A name server that does not take it is told of once in the log. The broker is registered nevertheless: routes then name the host that it
   is registered with.

(RocketMQ remoting, key-value configuration.)
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.errors import OrbitError, RemoteError
from orbitmq.limits.server import ENDPOINT_TIMEOUT_MS
from orbitmq.protocol.names import GRPC_ENDPOINTS_NAMESPACE
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.server.connections.outbound import Outbound

_log = logging.getLogger(__name__)


class PublishedEndpoint:
    """The entry of one broker. `text` is `host:port`, or that it serves no gRPC; while it is None nothing is published."""

    def __init__(self, broker_name: str) -> None:
        self._entry: Final = {"namespace": GRPC_ENDPOINTS_NAMESPACE, "key": broker_name}
        self.text: str | None = None
        self._refusals: Final[dict[str, str]] = {}
        """Name server -> why it did not take the entry last."""

    async def renew(self, name_server: Outbound) -> None:
        """See to it that the entry stands there. Raises nothing."""
        if self.text is None:
            return
        try:
            if await self._found(name_server) != self.text:
                await self._call(name_server, RequestCode.PUT_KV_CONFIG, value=self.text)
            self._refusals.pop(name_server.address, None)
        except OrbitError as error:
            if self._refusals.get(name_server.address) != str(error):
                self._refusals[name_server.address] = str(error)
                _log.warning(
                    "name server %s was not told where this broker serves gRPC: %s; clients of other brokers look for it at its "
                    "registered host",
                    name_server.address,
                    error,
                )

    async def withdraw(self, name_server: Outbound) -> None:
        """Remove the entry, unless it is another's by now. Raises nothing."""
        try:
            if self.text is not None and await self._found(name_server) == self.text:
                await self._call(name_server, RequestCode.DELETE_KV_CONFIG)
        except OrbitError as error:
            _log.info("name server %s keeps where this broker served gRPC: %s", name_server.address, error)

    async def _found(self, name_server: Outbound) -> str | None:
        answer = await self._call(name_server, RequestCode.GET_KV_CONFIG)
        return answer.fields.get("value")

    async def _call(self, name_server: Outbound, code: RequestCode, **more: str) -> Command:
        answer = await name_server.call(request(code, self._entry | more), ENDPOINT_TIMEOUT_MS)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            raise RemoteError(answer.code, answer.remark or "", address=name_server.address)
        return answer
