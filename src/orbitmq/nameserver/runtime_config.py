"""The present settings of a running name server: what is shown of them (request 319), and changes by request (318).

Rules of this file
1. A change is all or nothing. It is handed to `save` before it takes effect, so a restart keeps it.
2. A change can be unset: `orbitmq.unset` in the request names keys whose value becomes what counts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import CONFIG_UPDATE_BYTES_MAX
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.protocol.java_properties import format_properties, read_properties
from orbitmq.protocol.remoting.setting_changes import CHANGED_KEYS, FACT_PREFIX, UNSET_KEY, names_in, names_text


class KeptChanges(NamedTuple):
    """Changes by request of earlier runs, as texts, and what a start said of keys: `beneath(key)` is the value that counts without a
    change, and where that stands. `save(text)` keeps all changes made so far, as `key=value` lines, and may raise."""

    changes: Mapping[str, str]
    beneath: Callable[[str], tuple[str, str]]
    save: Callable[[str], None]


class RuntimeConfig:
    """Without `kept` a change lasts until the process ends."""

    def __init__(self, config: NameServerConfig, kept: KeptChanges | None = None) -> None:
        self.config = config
        """With the changes of earlier runs."""
        self._start: Final = config.texts()
        self._kept: Final = kept
        self._changes = dict(kept.changes if kept is not None else {})

    def shown(self) -> str:
        """Settings, names of changed ones, and what counts without each change that matters: `key=value` lines."""
        texts = self.config.texts()
        shown = texts | {CHANGED_KEYS: names_text(sorted(self._changes))}
        for name in self._changes:
            value, where = self._beneath(name)
            if value != texts[name]:
                shown[FACT_PREFIX + name] = f"{value or 'unset'} ({where})"
        return format_properties(sorted(shown.items()))

    def update(self, body: bytes) -> list[str]:
        """Apply the body of UPDATE_NAMESRV_CONFIG; the keys that mean nothing here.

        Raises ProtectedKeyError for a key that no request may change, ConfigurationError for everything else that is wrong, and what
        `save` raises; the settings are as before then.
        """
        if len(body) > CONFIG_UPDATE_BYTES_MAX:
            raise ConfigurationError(f"the change has {len(body)} bytes, at most {CONFIG_UPDATE_BYTES_MAX}")
        wanted = dict(read_properties(body, where="request"))
        forgotten = names_in(wanted.pop(UNSET_KEY, ""))
        for name in forgotten:
            if name not in self._changes:
                raise ConfigurationError(
                    f"{name} was not changed while running", remedy="its value comes from the start"
                )
            if name in wanted:
                raise ConfigurationError(f"{name} is set and unset by one request")
            wanted[name] = self._beneath(name)[0]
        changed, without_effect = self.config.changed(wanted)
        changes = self._changes | changed.differences(self.config)
        changes = {name: text for name, text in changes.items() if name not in forgotten}
        if self._kept is not None and changes != self._changes:
            self._kept.save(format_properties(sorted(changes.items())))
        self.config, self._changes = changed, changes
        return without_effect

    def _beneath(self, name: str) -> tuple[str, str]:
        if self._kept is None:
            return self._start[name], "the start"
        return self._kept.beneath(name)
