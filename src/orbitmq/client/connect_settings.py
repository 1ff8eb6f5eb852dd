"""How somebody connects to a cluster: who signs the requests, and over which TLS. One declaration for commands, contexts and Spark.

Rules of this file
1. The settings name files and commands; no secret stands in them, so they may be shown, stored and sent to other machines.
2. A file or a command is read where a connection is made, by the process that makes it. What it says is in no error.
3. Whoever gives settings of TLS without `tls` is told: a plain connection is never made by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.client import CLIENT_SECRET_BYTES_MAX, CLIENT_SECRET_COMMAND_S

if TYPE_CHECKING:
    import ssl

    from orbitmq.protocol.signing import Credentials


class ConnectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Signing and TLS of one cluster. Files are PEM files; of a file or command with a secret the first line is the secret."""

    access_key: Annotated[str | None, msgspec.Meta(title="NAME", description="Who signs requests.")] = None
    secret_file: Annotated[str | None, msgspec.Meta(title="FILE", description="File with the secret of who signs.")] = (
        None
    )
    secret_command: Annotated[
        str | None, msgspec.Meta(title="COMMAND", description="Shell command that prints the secret of who signs.")
    ] = None
    tls: Annotated[bool, msgspec.Meta(description="Use TLS.")] = False
    tls_trusted: Annotated[
        str | None,
        msgspec.Meta(title="FILE", description="Certificates to trust; else those that the system trusts."),
    ] = None
    tls_certificate: Annotated[
        str | None, msgspec.Meta(title="FILE", description="Certificate to show to servers that ask for one.")
    ] = None
    tls_key: Annotated[
        str | None, msgspec.Meta(title="FILE", description="Key of that certificate, where its file has none.")
    ] = None
    tls_password_file: Annotated[
        str | None, msgspec.Meta(title="FILE", description="File with the password of the key.")
    ] = None
    tls_password_command: Annotated[
        str | None, msgspec.Meta(title="COMMAND", description="Shell command that prints the password of the key.")
    ] = None
    tls_verify: Annotated[
        bool, msgspec.Meta(description="Verify certificates of servers; without, anybody may be the server.")
    ] = True

    def check(self) -> None:
        """`ConfigurationError` for settings that do not go together. Nothing is read."""
        secrets = self._secrets()
        if sum(map(bool, secrets.values())) != (self.access_key is not None):
            raise ConfigurationError(
                f"access_key goes with one of {', '.join(secrets)}, and none of them without it",
                remedy="give an access key and one of them",
            )
        given = [name for name in TLS_NAMES if name != "tls" and getattr(self, name) != _PLAIN[name]]
        if given and not self.tls:
            raise ConfigurationError(f"{given[0]} is given, and TLS is not used", remedy="give tls as well")
        if self.tls_key is not None and self.tls_certificate is None:
            raise ConfigurationError("tls_key is given without tls_certificate", remedy="a key goes with a certificate")
        if self.tls_password_file is not None and self.tls_password_command is not None:
            raise ConfigurationError("tls_password_file and tls_password_command are given", remedy="give one of them")

    def _secrets(self) -> Mapping[str, str | None]:
        """What says the secret, by name."""
        return {"secret_file": self.secret_file, "secret_command": self.secret_command}

    def with_tls(self, words: Mapping[str, Any]) -> ConnectSettings:
        """With some settings of TLS replaced. `tls` that is False takes all of them away."""
        if words.get("tls") is False:
            return msgspec.structs.replace(self, **_PLAIN)
        return msgspec.structs.replace(self, **words) if words else self

    def credentials(self) -> Credentials | None:
        """What requests are signed with, if these settings say so. Reads a file or runs a command. `ConfigurationError`."""
        if self.access_key is None:
            return None
        from orbitmq.protocol.signing import Credentials

        return Credentials(self.access_key, read_secret("secret", self.secret_file, self.secret_command))

    def tls_context(self) -> ssl.SSLContext | None:
        """What connections speak by; None for plain ones. Reads files, and runs a command for an encrypted key. `ConfigurationError`."""
        if not self.tls:
            return None
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.tls_trusted)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(f"tls_trusted: {self.tls_trusted} {_problem(error)}") from error
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.tls_certificate is not None:
            try:
                context.load_cert_chain(self.tls_certificate, self.tls_key, password=self._password)
            except (OSError, ValueError) as error:
                files = " and ".join(filter(None, (self.tls_certificate, self.tls_key)))
                raise ConfigurationError(
                    f"tls_certificate: {files} {_problem(error)}",
                    remedy="certificate and key are PEM files and fit each other; a password decrypts the key if it is encrypted",
                ) from error
        return context

    def _password(self) -> str:
        if self.tls_password_file is None and self.tls_password_command is None:
            return ""  # OpenSSL would ask on the terminal
        return read_secret("tls_password", self.tls_password_file, self.tls_password_command)


class SettingMeaning(NamedTuple):
    """What help and documentation say of one of the settings. value: what it takes; empty for a switch."""

    value: str
    meaning: str


def _meanings() -> dict[str, SettingMeaning]:
    found: dict[str, SettingMeaning] = {}
    for name, hint in get_type_hints(ConnectSettings, include_extras=True).items():
        [meta] = hint.__metadata__
        found[name] = SettingMeaning(meta.title or "", meta.description)
    return found


MEANINGS: Final[Mapping[str, SettingMeaning]] = _meanings()
"""Every setting by its name, in order."""

TLS_NAMES: Final = tuple(name for name in MEANINGS if name.startswith("tls"))

_PLAIN: Final = {name: getattr(ConnectSettings(), name) for name in TLS_NAMES}


def tls_words(environment: Mapping[str, str]) -> dict[str, str | bool]:
    """The settings of TLS that variables give: `ORBITMQ_TLS=true`, `ORBITMQ_TLS_TRUSTED=...`. Empty ones count as not given."""
    words: dict[str, str | bool] = {}
    for name in TLS_NAMES:
        text = environment.get(f"ORBITMQ_{name.upper()}", "")
        if not text:
            continue
        if MEANINGS[name].value:
            words[name] = text
        elif text.lower() in ("true", "false"):
            words[name] = text.lower() == "true"
        else:
            raise ConfigurationError(f"ORBITMQ_{name.upper()}={text[:40]!r}", remedy="set it to true or false")
    return words


def environment_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Who signs according to ORBITMQ_ACCESS_KEY, ORBITMQ_SECRET_KEY and ORBITMQ_SECURITY_TOKEN. `ConfigurationError`."""
    from orbitmq.protocol.signing import Credentials

    access_key, secret_key = environment.get("ORBITMQ_ACCESS_KEY"), environment.get("ORBITMQ_SECRET_KEY")
    if access_key and secret_key:
        return Credentials(access_key, secret_key, environment.get("ORBITMQ_SECURITY_TOKEN") or None)
    if access_key or secret_key:
        given, missing = ("ACCESS", "SECRET") if access_key else ("SECRET", "ACCESS")
        raise ConfigurationError(
            f"ORBITMQ_{given}_KEY is set and ORBITMQ_{missing}_KEY is not", remedy="set both, or none"
        )
    return None


def read_secret(what: str, file: str | None, command: str | None) -> str:
    """The first line of a file, or of what a command prints. Neither is shown in an error, only where it should have come from."""
    import subprocess  # a command that needs no secret starts without it

    try:
        if file is not None:
            source = f"{what}_file {file}"
            with Path(file).open("rb") as opened:
                printed = opened.read(CLIENT_SECRET_BYTES_MAX)
        else:
            source = f"{what}_command {command!r}"
            printed = subprocess.run(
                str(command), shell=True, stdout=subprocess.PIPE, check=True, timeout=CLIENT_SECRET_COMMAND_S
            ).stdout
        text = printed.decode()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the {source} failed ({type(error).__name__})", remedy="its first line has to be the secret"
        ) from None
    return (text.splitlines() or [""])[0].strip()


def _problem(error: Exception) -> str:
    """Why files of certificates cannot be used, without a word of what they hold."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return f"cannot be used: {reason or 'it holds no certificates, or a key that cannot be read'}"
