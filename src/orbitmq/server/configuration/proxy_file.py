"""`rmq-proxy.json`, the file of RocketMQ's proxy: its keys are settings of the broker's own port for gRPC.

It is read where it is named (`--proxy-config`). One that lies beside `broker.conf`, where RocketMQ looks for it, is looked at for its
switches of access: somebody who wrote others for the port of the proxy expects callers to be checked that would not be, or the other
way round.

Rules of this file
1. What both files may say has one value here, for every port: where they differ the start stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import PROXY_FILE_BYTES_MAX
from orbitmq.server.configuration.keys import KeyStatus, proxy_keys
from orbitmq.server.configuration.sources import ConfigEntry

FILE: Final = "rmq-proxy.json"
NAMES: Final = {
    "authenticationEnabled": "authenticationEnabled",
    "authorizationEnabled": "authorizationEnabled",
    "enableACL": "aclEnable",
}
"""Name of a switch for the proxy -> for the broker."""


def read_proxy_file(file: Path) -> list[ConfigEntry]:
    """The settings in the file, but for the switches of access. Raises ConfigurationError."""
    content = _content(file)
    if content is None:
        raise ConfigurationError(f"{file} does not exist", remedy="give --proxy-config an existing, readable file")
    entries = []
    for name, value in content.items():
        if name in NAMES or value is None:
            continue
        if isinstance(value, dict | list | float):
            raise ConfigurationError(
                f"{file}, key {name}: {value} is no value of any setting",
                remedy="give a string, a whole number, true or false",
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        entries.append(ConfigEntry(name, text, f"{file}, key {name}", proxy_keys()))
    return entries


def settings_named_in(file: Path) -> list[str]:
    """Keys of the file, if there is one, that would count if it were given. Raises ConfigurationError."""
    named = []
    for name, value in (_content(file) or {}).items():
        key = proxy_keys().find(name)
        if key is not None and key.status is KeyStatus.USED and value is not None and name not in NAMES:
            named.append(name)
    return named


def check_same(of_proxy: Iterable[ConfigEntry], of_broker: Iterable[ConfigEntry]) -> None:
    """ConfigurationError where the file of the proxy and that of the broker say different things of one setting."""
    said = {}
    for entry in of_broker:
        key = entry.table.find(entry.key)
        if key is not None and key.field:
            said[key.field] = entry
    for entry in of_proxy:
        key = entry.table.find(entry.key)
        other = said.get(key.field) if key is not None else None
        if other is not None and other.text.strip() != entry.text.strip():
            raise ConfigurationError(
                f"{entry.where}: {entry.key} differs from {other.key} ({other.where})",
                remedy="one value counts for every port: write the same in both files, or remove one of them",
            )


def check_switches(file: Path, switches: Mapping[str, bool]) -> None:
    """`switches` are those of the broker, by name. ConfigurationError where the file, if there is one, says otherwise."""
    settings = _content(file)
    if settings is None:
        return
    for theirs, ours in NAMES.items():
        value = str(settings.get(theirs) if settings.get(theirs) is not None else False).strip().lower()
        if value not in ("true", "false"):
            raise ConfigurationError(f"{file}: {theirs} is neither true nor false", remedy="correct the file")
        if (value == "true") is not switches[ours]:
            raise ConfigurationError(
                f"{file}: {theirs} is {value}, and {ours} of the broker is {str(switches[ours]).lower()}",
                remedy="the broker's switches govern every port: write the same in both files",
            )


def _content(file: Path) -> dict[str, object] | None:
    """What stands in the file; None where there is none."""
    try:
        with file.open("rb") as stream:
            content = stream.read(PROXY_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}", remedy="check its permissions") from error
    if len(content) > PROXY_FILE_BYTES_MAX:
        raise ConfigurationError(f"{file} is longer than {PROXY_FILE_BYTES_MAX} bytes: it is no file of a proxy")
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}", remedy="correct the file or move it away") from error
