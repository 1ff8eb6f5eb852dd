"""Contexts: named clusters in a file, and which cluster a command asks.

The file is `orbitmq/contexts.toml` in the user's configuration directory (`$XDG_CONFIG_HOME`, else `~/.config`):

    current = "staging"

    [contexts.staging]
    name_servers = "10.0.0.1:9876;10.0.0.2:9876"
    timeout_ms = 10000
    description = "second floor"
    expected_brokers = "broker-a;broker-b"
    access_key = "ops"
    secret_command = "pass show staging/ops"
    tls = true
    tls_trusted = "/etc/orbitmq/ca.crt"

`client/connect_settings.py` has the names for signing and TLS, `expected_brokers.py` says what expected_brokers are for. Instead of
`secret_command`, `secret_key` may hold the secret itself.
ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY, and with them ORBITMQ_SECURITY_TOKEN, are stronger than what a context says. Of TLS each
setting is that of the command line, else of its variable (ORBITMQ_TLS, ORBITMQ_TLS_TRUSTED, ...), else of the context.

Which cluster is asked, strongest first: `--name-server`; `--context`; the variable ORBITMQ_NAMESRV; the variable
ORBITMQ_CONTEXT; RocketMQ's variable NAMESRV_ADDR; the context in use; 127.0.0.1:9876.

Rules of this file
1. A file that cannot be understood is an error that names it and the place; it is never overwritten.
2. A change is written to a new file and renamed over the old one; only the owner may read it. A file with a secret that others may
   read is an error, and so is one that signs or runs something and that others may change.
3. The form is so small (numbers and single-line strings in flat tables) that it is written here; a library would only be one
   more thing to install. Comments in the file do not survive a change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from orbitmq.cli.asking.expected_brokers import expected_names
from orbitmq.cli.shared.output_file import write_private
from orbitmq.client.connect_settings import MEANINGS, ConnectSettings, environment_credentials, tls_words
from orbitmq.errors import ConfigurationError, NotFoundError
from orbitmq.limits.cli import (
    CLI_CONTEXT_FILE_BYTES_MAX,
    CLI_CONTEXTS_MAX,
    CLI_TIMEOUT_MS,
)
from orbitmq.protocol.signing import Credentials

DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Context(ConnectSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One cluster, and how to connect to it. timeout_ms: time limit of a call, for clusters that are far away."""

    name_servers: str
    timeout_ms: int | None = None
    description: str = ""
    expected_brokers: str = ""
    secret_key: str | None = None

    @property
    def settings(self) -> ConnectSettings:
        """How to connect, without the secret that may stand here."""
        return ConnectSettings(**{name: getattr(self, name) for name in MEANINGS})

    def _secrets(self) -> Mapping[str, str | None]:
        return {"secret_key": self.secret_key, **super()._secrets()}


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All contexts, and the one that is used when nothing else is said."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        """`NotFoundError` when there is no such context."""
        context = self.contexts.get(name)
        if context is None:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFoundError(
                f"there is no context {name!r}", remedy=f"known are: {known}; add it with: orbitmq context add"
            )
        return context

    def with_context(self, name: str, context: Context, *, use: bool) -> Contexts:
        """With one more or one replaced. The first one is used."""
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"{name[:80]!r} is no name for a context", remedy="use 1 to 64 letters, digits, - and _"
            )
        check_context(context)
        contexts = {**self.contexts, name: context}
        if len(contexts) > CLI_CONTEXTS_MAX:
            raise ConfigurationError(f"there are {CLI_CONTEXTS_MAX} contexts already", remedy="remove one")
        return Contexts(current=name if use or not self.contexts else self.current, contexts=contexts)

    def without(self, name: str) -> Contexts:
        self.get(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(current=None if self.current == name else self.current, contexts=left)

    def using(self, name: str) -> Contexts:
        self.get(name)
        return Contexts(current=name, contexts=self.contexts)


class Target(NamedTuple):
    """The cluster a command asks. source: what decided it, for people. known: who signs, where the secret itself was given.
    expected_brokers: names of brokers that should be there."""

    name_servers: str
    timeout_ms: int
    source: str
    settings: ConnectSettings
    known: Credentials | None = None
    expected_brokers: tuple[str, ...] = ()

    @property
    def access_key(self) -> str | None:
        """Who signs; None when nobody does."""
        return self.known.access_key if self.known is not None else self.settings.access_key

    def credentials(self) -> Credentials | None:
        """What requests are signed with. Reads the file or runs the command that knows the secret."""
        return self.known or self.settings.credentials()


def check_context(context: Context) -> None:
    """`ConfigurationError` for addresses that are none and text that does not fit on a line."""
    from orbitmq.client.addresses import parse_addresses

    parse_addresses(context.name_servers)
    if context.timeout_ms is not None and not 1 <= context.timeout_ms <= 600_000:
        raise ConfigurationError(f"timeout_ms={context.timeout_ms}: must be a whole number 1 to 600000")
    if not (context.name_servers + context.description).replace(" ", "x").isprintable():
        raise ConfigurationError("addresses and description must be one line of printable text")
    expected_names(context.expected_brokers)
    context.check()


def resolve(
    name_servers: str | None,
    context: str | None,
    timeout_ms: int | None,
    environment: Mapping[str, str],
    path: Path | None = None,
    *,
    tls: Mapping[str, Any] | None = None,
) -> Target:
    """The cluster that is meant, and how to connect to it. The file is read only if it can matter; no secret is looked up.

    tls: what the command line says of it, by the names of the settings.
    """
    own = environment_credentials(environment)
    words = {**tls_words(environment), **(tls or {})}
    if name_servers is not None and context is not None:
        raise ConfigurationError("--name-server and --context name two clusters", remedy="give one of them")

    def named(servers: str, source: str) -> Target:
        return Target(servers, timeout_ms or CLI_TIMEOUT_MS, source, _checked(ConnectSettings().with_tls(words)), own)

    if name_servers is not None:
        return named(name_servers, "--name-server")
    source = "--context"
    if context is None:
        if environment.get("ORBITMQ_NAMESRV"):
            return named(environment["ORBITMQ_NAMESRV"], "ORBITMQ_NAMESRV")
        if environment.get("ORBITMQ_CONTEXT"):
            context, source = environment["ORBITMQ_CONTEXT"], "ORBITMQ_CONTEXT"
        elif environment.get("NAMESRV_ADDR"):
            return named(environment["NAMESRV_ADDR"], "NAMESRV_ADDR")
    stored = load(path or contexts_path(environment))
    if context is None:
        if stored.current is None:
            return named(DEFAULT_NAME_SERVERS, "default")
        context, source = stored.current, "context in use"
    found = stored.get(context)
    limit_ms = timeout_ms or found.timeout_ms or CLI_TIMEOUT_MS
    settings = found.settings.with_tls(words)
    known = own
    if own is None and found.access_key is not None and found.secret_key is not None:
        known = Credentials(found.access_key, found.secret_key)
    if known is not None:
        settings = msgspec.structs.replace(settings, access_key=None, secret_file=None, secret_command=None)
    expected = expected_names(found.expected_brokers)
    return Target(found.name_servers, limit_ms, f"context {context} ({source})", _checked(settings), known, expected)


def _checked(settings: ConnectSettings) -> ConnectSettings:
    settings.check()
    return settings


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Where the file is, whether it exists or not. A relative XDG_CONFIG_HOME is ignored, as its specification says."""
    configured = Path(environment.get("XDG_CONFIG_HOME") or "")
    root = configured if configured.is_absolute() else Path(environment.get("HOME") or "~").expanduser() / ".config"
    return root / "orbitmq" / "contexts.toml"


def load(path: Path) -> Contexts:
    """What the file says; no contexts when it does not exist. `ConfigurationError` when it cannot be read."""
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(CLI_CONTEXT_FILE_BYTES_MAX + 1)
            found = os.fstat(file.fileno())
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", remedy="check its permissions") from error
    if len(data) > CLI_CONTEXT_FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is longer than {CLI_CONTEXT_FILE_BYTES_MAX} bytes; it is no list of contexts")
    try:
        stored = msgspec.convert(tomllib.loads(data.decode()), Contexts)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}", remedy="correct the file or move it away") from error
    for name, context in stored.contexts.items():
        try:
            check_context(context)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: context {name!r}: {error}", remedy="correct the file") from error
    contexts = stored.contexts.values()
    if found.st_mode & 0o077 and any(context.secret_key for context in contexts):
        raise ConfigurationError(f"{path} holds a secret and others may read it", remedy=f"chmod 600 {path}")
    may_others_change = found.st_mode & 0o022 or found.st_uid not in (0, os.geteuid())
    if may_others_change and any(context.access_key or context.tls_password_command for context in contexts):
        raise ConfigurationError(
            f"{path} says what to run or who signs, and others may change it", remedy=f"own it, and chmod 600 {path}"
        )
    if stored.current is not None and stored.current not in stored.contexts:
        raise ConfigurationError(
            f"{path}: current = {stored.current!r} names no context", remedy="choose one: orbitmq context use NAME"
        )
    return stored


def save(path: Path, contexts: Contexts) -> None:
    """Replace the file; when this returns it is on the disk. `ConfigurationError` when that cannot be done."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, encode(contexts).encode())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", remedy="check its directory") from error


def encode(contexts: Contexts) -> str:
    """The file's text. JSON of numbers, truth values and strings without control characters is TOML."""
    lines = ["# Written by `orbitmq context`; comments are lost at the next change."]
    if contexts.current is not None:
        lines.append(f"current = {_text(contexts.current)}")
    for name, context in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{name}]"]
        for field, value in msgspec.to_builtins(context).items():
            lines.append(f"{field} = {_text(value)}")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
