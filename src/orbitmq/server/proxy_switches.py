"""RocketMQ's proxy reads its switches of access from a file of its own, `rmq-proxy.json` beside `broker.conf`.

One pair of switches governs every port here. Somebody who wrote others for the port of the proxy expects callers to be checked that would
not be, or the other way round: such a file stops the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import PROXY_FILE_BYTES_MAX

FILE: Final = "rmq-proxy.json"
NAMES: Final = {
    "authenticationEnabled": "authenticationEnabled",
    "authorizationEnabled": "authorizationEnabled",
    "enableACL": "aclEnable",
}
"""Name of a switch for the proxy -> for the broker."""


def check_proxy_switches(folder: Path, switches: Mapping[str, bool]) -> None:
    """`switches` are those of the broker, by name. ConfigurationError where the file in `folder`, if there is one, says otherwise."""
    file = folder / FILE
    try:
        with file.open("rb") as stream:
            content = stream.read(PROXY_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}", remedy="check its permissions") from error
    if len(content) > PROXY_FILE_BYTES_MAX:
        raise ConfigurationError(f"{file} is longer than {PROXY_FILE_BYTES_MAX} bytes: it is no file of a proxy")
    try:
        settings = msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}", remedy="correct the file or move it away") from error
    for theirs, ours in NAMES.items():
        value = str(settings.get(theirs) if settings.get(theirs) is not None else False).strip().lower()
        if value not in ("true", "false"):
            raise ConfigurationError(f"{file}: {theirs} is neither true nor false", remedy="correct the file")
        if (value == "true") is not switches[ours]:
            raise ConfigurationError(
                f"{file}: {theirs} is {value}, and {ours} of the broker is {str(switches[ours]).lower()}",
                remedy="the broker's switches govern every port: write the same in both files",
            )
