"""The table of users of a broker as a start finds or makes it.

Rules of this file
1. A table or key that cannot be used stops the start.
2. Users that the configuration names, and those of RocketMQ 4's files, are made where they are missing, and never changed: their
   passwords may have been since.
3. No password and no key stands in a message.
4. A configuration that looks as if it counted and does not is said: another password than the user has, and users that nobody is asked
   about.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.access import audit
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.plain.accounts import PlainAccount
from orbitmq.access.plain.moving import moved_over
from orbitmq.access.sealing import read_keys
from orbitmq.access.users import ACCESS_FILE
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.access import KEY_FILE_BYTES_MAX
from orbitmq.server.access.named_users import named_users
from orbitmq.server.access.plain_access import accounts_to_move
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.roles.takeover import StoreFolder, users_of_rocketmq
from orbitmq.store.files import Files

logger: Final = logging.getLogger("orbitmq.server")


def open_access(settings: ServerSettings, files: Files, clock: Clock) -> SavedAccess | None:
    """None where nobody is asked who they are. Raises ConfigurationError, StoreDamagedError, OSError.

    A table that cannot be written now is in force nevertheless, and written with the next change.
    """
    own = settings.access
    path = settings.data / "config" / ACCESS_FILE
    if not own.authenticates:
        if not own.plain and files.exists(path):
            logger.warning("authenticationEnabled is off: everybody may do everything, whatever %s says of users", path)
        return None
    keys = read_key_file(Path(own.key_file)) if own.key_file else ()
    if unread := users_of_rocketmq(StoreFolder(settings.data, files)):
        logger.warning(
            "%s say nothing here, whatever RocketMQ has changed there: users and policies are those of %s",
            " and ".join(unread),
            path,
        )
    file = AccessFile(files, path, keys)
    access = SavedAccess(file, clock, file)
    named = list(named_users(own))
    for user in access.load(named):
        audit.logger.info("the configuration: user %r created: %s, %s", user.name, user.type.value, user.status.value)
    for user in named:
        known = access.table.user(user.name)
        if known is not None and known.password != user.password:
            logger.warning(
                "user %r has another password than the configuration says, and keeps it: only `orbitmq access user update` changes it",
                user.name,
            )
    if own.migrates_v1:
        _move_accounts(access, accounts_to_move(settings))
    try:
        access.save()
    except OSError as error:
        logger.error("users and policies could not be saved: %s; they are tried again with the next change", error)
    return access


def _move_accounts(access: SavedAccess, accounts: Sequence[PlainAccount]) -> None:
    """Make users of the accounts of RocketMQ 4."""
    count = 0
    for account in accounts:
        user, acl = moved_over(account)
        if access.add(user, acl):
            audit.logger.info(
                "migrateAuthFromV1Enabled: user %r created: %s, with its policies", user.name, user.type.value
            )
            count += 1
    if count < len(accounts):
        logger.warning(
            "migrateAuthFromV1Enabled: %d accounts are users already, and what their files say of them now counts for nothing",
            len(accounts) - count,
        )


def users_gate(access: SavedAccess, settings: ServerSettings, attempts: FailedAttempts) -> UsersGate:
    """The gate of a broker with these users."""
    own = settings.access
    rules = GateRules(settings.broker.broker_cluster_name, own.authorizes, own.unsigned, own.unjudged)
    return UsersGate(access.table, rules, attempts)


def read_key_file(path: Path) -> tuple[bytes, ...]:
    """Keys that the table is encrypted with (`accessKeyFile`). ConfigurationError when they cannot be used; a warning when other users
    of the machine can read them."""
    try:
        with path.open("rb") as file:
            content = file.read(KEY_FILE_BYTES_MAX + 1)
        if len(content) > KEY_FILE_BYTES_MAX:
            raise ValueError(f"it has more than {KEY_FILE_BYTES_MAX} bytes")
        keys = read_keys(content.decode("ascii", "replace"))
        if path.stat().st_mode & 0o077:
            logger.warning("accessKeyFile %s can be read by others on this machine: chmod 600 %s", path, path)
        return keys
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"accessKeyFile {path} cannot be used: {why}",
            remedy="restore the key that the table of users is encrypted with; `openssl rand -base64 32` makes the first one",
        ) from None
