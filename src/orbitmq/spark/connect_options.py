"""Options that say how to connect: who signs, and over which TLS; the same for reads and writes, and for what pipelines do with either.

Rules of this file
1. Options name files and commands on the machines that connect, which are the driver and every executor. No secret is an option, so
   none stands in a plan, a log or Spark's pages.
2. Where no option says who signs, the variables ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY of the connecting process do.
3. A process looks a secret up once. Python processes that Spark keeps go on with it until they end.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Final, NamedTuple

import msgspec

from orbitmq.client.connect_settings import MEANINGS, ConnectSettings, environment_credentials
from orbitmq.client.options import ClientOptions
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SPARK_CONNECT_PARTS_MAX
from orbitmq.protocol.signing import Credentials
from orbitmq.spark.given_options import GivenOptions, Option

_VALUES: Final = {
    "FILE": "a path on every machine",
    "COMMAND": "a command of the shell",
    "NAME": "a name",
    "": "`true` or `false`",
}
_PLAIN: Final = ConnectSettings()


def _option_name(setting: str) -> str:
    first, *rest = setting.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _default(setting: str) -> str:
    value = getattr(_PLAIN, setting)
    return f"`{str(value).lower()}`" if isinstance(value, bool) else ""


CONNECT_OPTIONS: Final = tuple(
    [
        Option(_option_name(setting), _VALUES[value], _default(setting), meaning)
        for setting, (value, meaning) in MEANINGS.items()
    ]
)
"""One option for each of the settings."""


def connect_settings(given: GivenOptions) -> ConnectSettings:
    """What the options say. `ConfigurationError` for what does not go together."""
    words: dict[str, str | bool] = {}
    for setting, (value, _) in MEANINGS.items():
        name = _option_name(setting)
        if not given.get(name):
            continue
        words[setting] = str(given.get(name)) if value else given.flag(name, default=getattr(_PLAIN, setting))
    settings = msgspec.structs.replace(_PLAIN, **words)
    settings.check()
    return settings


def options_of(settings: ConnectSettings) -> dict[str, str]:
    """The options that say these settings."""
    return {
        _option_name(setting): str(value).lower() if isinstance(value, bool) else value
        for setting, value in msgspec.to_builtins(settings).items()
    }


class ConnectParts(NamedTuple):
    """What connections of this process are made with; None where nothing is encrypted or signed."""

    tls: ssl.SSLContext | None
    credentials: Credentials | None

    @property
    def client_options(self) -> ClientOptions:
        return ClientOptions(tls=self.tls or False, credentials=self.credentials)


@functools.lru_cache(maxsize=SPARK_CONNECT_PARTS_MAX)
def connect_parts(settings: ConnectSettings) -> ConnectParts:
    """Reads files and runs commands at the first call. `ConfigurationError` names the machine that could not."""
    try:
        return ConnectParts(settings.tls_context(), settings.credentials() or environment_credentials(os.environ))
    except ConfigurationError as error:
        raise ConfigurationError(f"on {os.uname().nodename}: {error.args[0]}", remedy=error.remedy) from error
