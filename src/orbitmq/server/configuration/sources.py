"""Where configuration comes from: a file, the environment, `--set` flags, changes made while running.

Rules of this file
1. A source turns into `ConfigEntry` values, text and place; what a key means is decided elsewhere.
2. The suffix decides how a file is read: `.toml` is TOML, everything else RocketMQ's properties form.
3. In a TOML file keys stand at the top or under `[broker]`; `[nameserver]` holds the name server's own keys, so that
   one file can give both a `listenPort`.
4. A variable that begins with `ORBITMQ_` is a setting unless it is named in `OTHER_VARIABLES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import CONFIG_FILE_BYTES_MAX
from orbitmq.protocol.java_properties import decode_text, parse_properties
from orbitmq.server.configuration.keys import ENVIRONMENT_PREFIX, KeyTable, broker_keys, nameserver_keys

OTHER_VARIABLES: Final = frozenset(
    {
        "ORBITMQ_CONFIG",  # the file to read, as --config
        "ORBITMQ_CONTEXT",  # the named cluster that client commands ask, as --context
        "ORBITMQ_PROXY_CONFIG",  # the file of RocketMQ's proxy to read, as --proxy-config
        "ORBITMQ_DATA",  # the data directory, as --data
        "ORBITMQ_LEAF",  # off: leave the compiled module out; required: refuse to run without it
        "ORBITMQ_NAMESRV",  # name servers of the client commands
        "ORBITMQ_ACCESS_KEY",  # who asks, for the client commands, and these two prove it
        "ORBITMQ_SECRET_KEY",
        "ORBITMQ_SECURITY_TOKEN",
        "ORBITMQ_TLS",  # how the client commands connect: true or false, and the six that follow
        "ORBITMQ_TLS_TRUSTED",
        "ORBITMQ_TLS_CERTIFICATE",
        "ORBITMQ_TLS_KEY",
        "ORBITMQ_TLS_PASSWORD_FILE",
        "ORBITMQ_TLS_PASSWORD_COMMAND",
        "ORBITMQ_TLS_VERIFY",
        "ORBITMQ_OUTPUT",  # table or json
        "ORBITMQ_OVERLOAD_SECONDS",  # tests: how long to overload a server
        "ORBITMQ_REQUIRE_ALL",  # tests: a skip is a failure
        "ORBITMQ_REWRITE",  # tests: write expected results instead of comparing
        "ORBITMQ_WRITE_COVERAGE",  # tests: write the table of replayed exchanges
    }
)
"""Variables with our prefix that are no settings of a server."""


class ConfigEntry(NamedTuple):
    """One key with the text of its value and where both stand. `table` says which keys the name belongs to."""

    key: str
    text: str
    where: str
    table: KeyTable


def read_file(path: Path, table: KeyTable) -> list[ConfigEntry]:
    """The entries of a configuration file in order.

    ConfigurationError when it cannot be read, is too long, or is not of the form its suffix promises.
    """
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"configuration file {path}: {error.strerror}", remedy="give --config an existing, readable file"
        ) from error
    if len(data) > CONFIG_FILE_BYTES_MAX:
        raise ConfigurationError(f"configuration file {path} is larger than {CONFIG_FILE_BYTES_MAX} bytes")
    if path.suffix.lower() == ".toml":
        return _toml_entries(data, path, table)
    entries = parse_properties(decode_text(data), where=str(path))
    return [ConfigEntry(entry.key, entry.value, f"{path}, line {entry.line}", table) for entry in entries]


def read_environment(environment: Mapping[str, str], table: KeyTable) -> list[ConfigEntry]:
    """The settings among the environment's variables, sorted by variable.

    ConfigurationError for a variable with our prefix that names no key.
    """
    entries: list[ConfigEntry] = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        key = table.find_environment(variable)
        if key is None:
            if _known_elsewhere(variable):
                continue  # a variable for the other role of a deployment that shares one environment
            nearest = table.nearest_environment(variable)
            raise ConfigurationError(
                f"environment variable {variable} names no setting",
                remedy=f"did you mean {nearest}?" if nearest else "unset it",
            )
        entries.append(ConfigEntry(key.key, environment[variable], f"environment variable {variable}", table))
    return entries


def read_flags(flags: Iterable[str], table: KeyTable) -> list[ConfigEntry]:
    """The entries of `--set key=value` flags; ConfigurationError for one without an equals sign."""
    entries: list[ConfigEntry] = []
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--set {flag!r} is not key=value", remedy="write --set flushDiskType=SYNC_FLUSH")
        entries.append(ConfigEntry(key.strip(), text, f"--set {key.strip()}", table))
    return entries


def _known_elsewhere(variable: str) -> bool:
    return any(keys.find_environment(variable) is not None for keys in (broker_keys(), nameserver_keys()))


def _toml_entries(data: bytes, path: Path, table: KeyTable) -> list[ConfigEntry]:
    import tomllib  # most configurations are properties

    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path} is not TOML: {error}") from error
    entries: list[ConfigEntry] = []
    for name, value in document.items():
        if name == "nameserver" and isinstance(value, dict):
            entries.extend(_flatten(value, "", path, nameserver_keys()))
        elif name == "broker" and isinstance(value, dict):
            entries.extend(_flatten(value, "", path, broker_keys()))
        else:
            entries.extend(_flatten({name: value}, "", path, table))
    return entries


def _flatten(values: Mapping[str, object], prefix: str, path: Path, table: KeyTable) -> list[ConfigEntry]:
    entries: list[ConfigEntry] = []
    for name, value in values.items():
        key = prefix + name
        if isinstance(value, dict):
            entries.extend(_flatten(value, key + ".", path, table))
        else:
            entries.append(ConfigEntry(key, _toml_text(key, value, path), f"{path}, key {key}", table))
    return entries


def _toml_text(key: str, value: object, path: Path) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, list):
        separator = " " if key == "messageDelayLevel" else ";"
        return separator.join(_toml_text(key, part, path) for part in value)
    raise ConfigurationError(
        f"{path}, key {key}: a {type(value).__name__} is no value of any setting",
        remedy="give a string, a whole number, true, false, or a list of them",
    )
