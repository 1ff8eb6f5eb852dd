"""Reading and changing the configuration of a running broker (requests 26 and 25).

Rules of this file
1. What is shown is true: used keys with their values, unbuilt promises with the value they really have. Keys
   without effect are not shown, for their value would mean nothing.
2. A change is all or nothing, and only keys marked `runtime` change; the others say that they take effect at start.
3. A change can be unset: `orbitmq.unset` in the request names keys whose value becomes what counts without it.
4. Accepted changes are handed to `save` as properties text before they take effect, so a restart keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError, ProtectedKeyError
from orbitmq.limits.server import CONFIG_UPDATE_BYTES_MAX
from orbitmq.protocol.java_properties import format_properties, read_properties
from orbitmq.protocol.remoting.setting_changes import FACT_PREFIX, UNSET_KEY, names_in
from orbitmq.server.configuration.kept_changes import DEFAULT_ORIGIN, ValueBeneath
from orbitmq.server.configuration.keys import KeyStatus, ValueKind, broker_keys
from orbitmq.server.configuration.settings import ServerSettings, present_value
from orbitmq.server.configuration.values import parse, to_text

PROTECTED_KEYS: Final = frozenset(
    {"configBlackList", "brokerConfigPath", "rocketmqHome", "storePathRootDir", "storePathCommitLog", "bindAddress"}
)
"""Keys that no request changes: they would unlock, move or expose the server itself."""

SECRET_SHOWN: Final = "******"
"""Stands for a password that is set."""


class RuntimeSettings:
    """The present settings of a running broker.

    `save(text)` keeps all changes made so far; `changed(settings)` is called after a change took effect. Both may
    raise: a change that cannot be saved is not made.
    """

    __slots__ = ("_changed", "_save", "_start", "settings")

    def __init__(
        self,
        settings: ServerSettings,
        *,
        save: Callable[[str], None] | None = None,
        changed: Callable[[ServerSettings], None] | None = None,
    ) -> None:
        self.settings = settings
        self._start = settings
        self._save = save
        self._changed = changed

    def shown(self) -> dict[str, str]:
        """The configuration, key to text; what GET_BROKER_CONFIG answers."""
        return shown_settings(self.settings)

    def update(self, body: bytes) -> dict[str, str]:
        """Apply the body of UPDATE_BROKER_CONFIG and return what changed, key to text.

        Raises ProtectedKeyError for a key that no request may change and ConfigurationError for everything else that
        is wrong; the settings are as before then.
        """
        settings, changes = changed_settings(self.settings, body, self._beneath)
        if settings is self.settings:
            return {}
        if self._save is not None:
            self._save(format_properties(sorted(settings.changed_while_running.items())))
        self.settings = settings
        if self._changed is not None:
            self._changed(settings)
        return changes

    def facts(self) -> dict[str, str]:
        """Of each key that has another value by a change than without it: the value without, and where that stands. A change that does
        not count, for something stronger was said at the start, is none."""
        found = {}
        for name in sorted(self.settings.changed_while_running):
            key, other = broker_keys().find(name), self._beneath(name)
            if key is not None and other.text != to_text(present_value(self.settings, key)):
                found[FACT_PREFIX + name] = f"{other.text or 'unset'} ({other.where})"
        return found

    def _beneath(self, name: str) -> ValueBeneath:
        if (known := self._start.beneath_changes.get(name)) is not None:
            return known
        key = broker_keys().find(name)
        assert key is not None, "a change of a key that is unknown was refused"
        return ValueBeneath(to_text(present_value(self._start, key)), self._start.given.get(name, DEFAULT_ORIGIN))


def shown_settings(settings: ServerSettings) -> dict[str, str]:
    """Used and unbuilt keys with the texts of their present values."""
    shown: dict[str, str] = {}
    for key in broker_keys():
        if key.status is KeyStatus.USED:
            text = to_text(present_value(settings, key))
            shown[key.key] = SECRET_SHOWN if text and key.kind is ValueKind.SECRET else text
        elif key.status is KeyStatus.NOT_YET:
            shown[key.key] = key.accepts[0]
    return shown


def changed_settings(
    settings: ServerSettings, body: bytes, beneath: Callable[[str], ValueBeneath]
) -> tuple[ServerSettings, dict[str, str]]:
    """New settings after the `key=value` lines of `body`, and the keys whose value changed; the same settings where nothing did.
    `beneath`: what counts without the change of a key."""
    if len(body) > CONFIG_UPDATE_BYTES_MAX:
        raise ConfigurationError(f"{len(body)} bytes of configuration are more than {CONFIG_UPDATE_BYTES_MAX}")
    wanted = read_properties(body, where="request")
    if not wanted:
        raise ConfigurationError("the request names no key", remedy="send key=value lines")
    forgotten = names_in(wanted.pop(UNSET_KEY, ""))
    for name in forgotten:
        if name not in settings.changed_while_running:
            raise ConfigurationError(f"{name} was not changed while running", remedy="its value comes from the start")
        if name in wanted:
            raise ConfigurationError(f"{name} is set and unset by one request")
        wanted[name] = beneath(name).text
    protected = PROTECTED_KEYS | set(settings.config_black_list)
    for name in wanted:
        if name in protected:
            raise ProtectedKeyError(f"{name} cannot be changed by request", remedy="change it on the server itself")

    parts: dict[str, dict[str, object]] = {}
    changes: dict[str, str] = {}
    for name, text in wanted.items():
        changed = _changed_field(settings, name, text)
        if changed is not None:
            section, attribute, value = changed
            parts.setdefault(section, {})[attribute] = value
            changes[name] = to_text(value)
    if not changes and not forgotten:
        return settings, {}
    replaced: dict[str, object] = {
        section: msgspec.structs.replace(getattr(settings, section), **values) for section, values in parts.items()
    }
    kept = {**settings.changed_while_running, **changes}
    replaced["changed_while_running"] = {name: text for name, text in kept.items() if name not in forgotten}
    return msgspec.structs.replace(settings, **replaced), changes


def _changed_field(settings: ServerSettings, name: str, text: str) -> tuple[str, str, object] | None:
    """Section, attribute and new value of a key that really changes; None when everything stays as it is."""
    key = broker_keys().find(name)
    if key is None:
        nearest = broker_keys().nearest(name)
        raise ConfigurationError(f"unknown key {name!r}", remedy=f"did you mean {nearest}?" if nearest else None)
    if key.status is KeyStatus.NO_EFFECT:
        return None
    if key.status is KeyStatus.NOT_YET:
        if key.asks_for_nothing(text):
            return None
        raise ConfigurationError(f"{name} = {text.strip()!r} promises what is not built yet. {key.reason}")
    if key.kind is ValueKind.SECRET:
        # Before it is compared: the answer would tell whether a guess was right.
        raise ConfigurationError(f"{name} takes effect only at the start", remedy="set it in the configuration file")
    value = parse(key, text, "request")
    if value == present_value(settings, key):
        return None
    if not key.runtime:
        raise ConfigurationError(f"{name} takes effect only at the start", remedy="set it in the configuration file")
    section, _, attribute = key.field.partition(".")
    return section, attribute, value
