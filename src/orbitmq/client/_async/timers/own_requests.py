"""Requests that orbitmq's broker answers and RocketMQ's does not: what is missing there is said with the broker's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client._async.runtime import offload
from orbitmq.client.message import STORED
from orbitmq.errors import RemoteError
from orbitmq.limits.wire import DECOMPRESSED_BYTES_MAX
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.sysflag import compression_of

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext


async def ask(
    client: ClientContext,
    broker: tuple[str, str],
    code: RequestCode,
    body: JsonBody,
    *,
    doing: str,
    lacks: str,
    remedy: str,
    accept: tuple[ResponseCode, ...] = (),
) -> Command:
    """The answer of a broker, given as name and address: success, stored with less than was promised (`STORED`), or one of `accept`.

    Raises RemoteError: for a broker that does not know the request it says that it `lacks` something, and the `remedy`.
    """
    name, address = broker
    answer = await client.network.insist(
        address,
        code,
        {},
        body.encode(),
        timeout_ms=client.options.admin_timeout_ms,
        doing=doing,
        accept=(*STORED, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, *accept),
    )
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise RemoteError(answer.code, f"broker {name} has no {lacks}", address=address, remedy=remedy)
    return answer


async def restored(body: bytes, sys_flag: int) -> bytes:
    """The body of a message in an answer, as it was sent. Raises as `compression.decompress`."""
    compression = compression_of(sys_flag)
    if compression is None:
        return body
    from orbitmq.protocol.compression import decompress

    return await offload(len(body), decompress, body, compression, DECOMPRESSED_BYTES_MAX)
