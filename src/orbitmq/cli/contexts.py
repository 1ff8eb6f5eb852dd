"""Contexts: named clusters in a file, and which cluster a command asks.

The file is `orbitmq/contexts.toml` in the user's configuration directory (`$XDG_CONFIG_HOME`, else `~/.config`):

    current = "staging"

    [contexts.staging]
    name_servers = "10.0.0.1:9876;10.0.0.2:9876"
    timeout_ms = 10000
    description = "second floor"
    access_key = "ops"
    secret_command = "pass show staging/ops"

Instead of `secret_command`, whose first line of output is the secret, `secret_key` may hold it. ORBITMQ_ACCESS_KEY and
ORBITMQ_SECRET_KEY, and with them ORBITMQ_SECURITY_TOKEN, are stronger than what a context says.

Which cluster is asked, strongest first: `--name-server`; `--context`; the variable ORBITMQ_NAMESRV; the variable
ORBITMQ_CONTEXT; RocketMQ's variable NAMESRV_ADDR; the context in use; 127.0.0.1:9876.

Rules of this file
1. A file that cannot be understood is an error that names it and the place; it is never overwritten.
2. A change is written to a new file and renamed over the old one; only the owner may read it. A file with a secret that others may
   read is an error.
3. The form is so small (numbers and single-line strings in flat tables) that it is written here; a library would only be one
   more thing to install. Comments in the file do not survive a change.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import ConfigurationError, NotFoundError
from orbitmq.limits.cli import (
    CLI_CONTEXT_FILE_BYTES_MAX,
    CLI_CONTEXTS_MAX,
    CLI_SECRET_COMMAND_S,
    CLI_TIMEOUT_MS,
)
from orbitmq.protocol.signing import Credentials

DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One cluster. timeout_ms: time limit of a call, for clusters that are far away. access_key: who signs; without, nobody."""

    name_servers: str
    timeout_ms: int | None = None
    description: str = ""
    access_key: str | None = None
    secret_key: str | None = None
    secret_command: str | None = None

    def credentials(self) -> Credentials | None:
        """What requests are signed with. Runs `secret_command`, if there is one. `ConfigurationError`."""
        if self.access_key is None:
            return None
        return Credentials(self.access_key, self.secret_key or _printed_by(str(self.secret_command)))


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
    """The cluster a command asks. source: what decided it, for people. credentials: who asks; None signs nothing."""

    name_servers: str
    timeout_ms: int
    source: str
    credentials: Credentials | None = None


def check_context(context: Context) -> None:
    """`ConfigurationError` for addresses that are none and text that does not fit on a line."""
    from orbitmq.client.addresses import parse_addresses

    parse_addresses(context.name_servers)
    if context.timeout_ms is not None and not 1 <= context.timeout_ms <= 600_000:
        raise ConfigurationError(f"timeout_ms={context.timeout_ms}: must be a whole number 1 to 600000")
    if not (context.name_servers + context.description).replace(" ", "x").isprintable():
        raise ConfigurationError("addresses and description must be one line of printable text")
    secrets = [context.secret_key, context.secret_command]
    if (context.access_key is None) == any(secrets) or all(secrets):
        raise ConfigurationError(
            "access_key goes with secret_key or with secret_command, and neither without it",
            remedy="give an access key and one of the two",
        )


def resolve(
    name_servers: str | None,
    context: str | None,
    timeout_ms: int | None,
    environment: Mapping[str, str],
    path: Path | None = None,
    *,
    runs_commands: bool = True,
) -> Target:
    """The cluster that is meant, and who asks. The file is read only if it can matter. runs_commands: False leaves out a secret that
    only a command knows, which may ask its user something."""
    own = _credentials_of(environment)
    if name_servers is not None and context is not None:
        raise ConfigurationError("--name-server and --context name two clusters", remedy="give one of them")
    if name_servers is not None:
        return Target(name_servers, timeout_ms or CLI_TIMEOUT_MS, "--name-server", own)
    source = "--context"
    if context is None:
        if environment.get("ORBITMQ_NAMESRV"):
            return Target(environment["ORBITMQ_NAMESRV"], timeout_ms or CLI_TIMEOUT_MS, "ORBITMQ_NAMESRV", own)
        if environment.get("ORBITMQ_CONTEXT"):
            context, source = environment["ORBITMQ_CONTEXT"], "ORBITMQ_CONTEXT"
        elif environment.get("NAMESRV_ADDR"):
            return Target(environment["NAMESRV_ADDR"], timeout_ms or CLI_TIMEOUT_MS, "NAMESRV_ADDR", own)
    stored = load(path or contexts_path(environment))
    if context is None:
        if stored.current is None:
            return Target(DEFAULT_NAME_SERVERS, timeout_ms or CLI_TIMEOUT_MS, "default", own)
        context, source = stored.current, "context in use"
    found = stored.get(context)
    limit_ms = timeout_ms or found.timeout_ms or CLI_TIMEOUT_MS
    if own is None and (runs_commands or found.secret_command is None):
        own = found.credentials()
    return Target(found.name_servers, limit_ms, f"context {context} ({source})", own)


def _credentials_of(environment: Mapping[str, str]) -> Credentials | None:
    access_key, secret_key = environment.get("ORBITMQ_ACCESS_KEY"), environment.get("ORBITMQ_SECRET_KEY")
    if access_key and secret_key:
        return Credentials(access_key, secret_key, environment.get("ORBITMQ_SECURITY_TOKEN") or None)
    if access_key or secret_key:
        given, missing = ("ACCESS", "SECRET") if access_key else ("SECRET", "ACCESS")
        raise ConfigurationError(
            f"ORBITMQ_{given}_KEY is set and ORBITMQ_{missing}_KEY is not", remedy="set both, or none"
        )
    return None


def _printed_by(command: str) -> str:
    """The first line that a command of the shell prints."""
    try:
        ran = subprocess.run(
            command, shell=True, stdout=subprocess.PIPE, text=True, check=True, timeout=CLI_SECRET_COMMAND_S
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        # The command is shown, what it printed never.
        raise ConfigurationError(
            f"the secret_command {command!r} failed ({type(error).__name__})",
            remedy="try it in a shell: its first line of output has to be the secret",
        ) from None
    return (ran.stdout.splitlines() or [""])[0].strip()


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
            open_to_others = os.fstat(file.fileno()).st_mode & 0o077
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
    if open_to_others and any(context.secret_key for context in stored.contexts.values()):
        raise ConfigurationError(f"{path} holds a secret and others may read it", remedy=f"chmod 600 {path}")
    if stored.current is not None and stored.current not in stored.contexts:
        raise ConfigurationError(
            f"{path}: current = {stored.current!r} names no context", remedy="choose one: orbitmq context use NAME"
        )
    return stored


def save(path: Path, contexts: Contexts) -> None:
    """Replace the file; when this returns it is on the disk. `ConfigurationError` when that cannot be done."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file readable for its owner only.
        descriptor, new = tempfile.mkstemp(prefix=".contexts-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(encode(contexts))
                file.flush()
                os.fsync(file.fileno())
            Path(new).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(new).unlink()
            raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", remedy="check its directory") from error


def encode(contexts: Contexts) -> str:
    """The file's text. A JSON string without control characters is a TOML string."""
    lines = ["# Written by `orbitmq context`; comments are lost at the next change."]
    if contexts.current is not None:
        lines.append(f"current = {_text(contexts.current)}")
    for name, context in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{name}]"]
        for field, value in msgspec.to_builtins(context).items():
            lines.append(f"{field} = {_text(value) if isinstance(value, str) else value}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()
