"""What a name server can be told, and how the keys are called on the wire.

Rules of this file
1. An attribute exists because code in this package, or whoever starts it, reads it.
2. Attributes are snake case; the name of a key in files, flags and requests is RocketMQ's camel case (`KEYS`).
3. Times carry the unit RocketMQ gives them (its key names do not say so, the docstrings here do).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError, ProtectedKeyError

PROTECTED_KEYS: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Keys that a remote request never changes: they would move or unlock the server's own files."""


class NameServerConfig(msgspec.Struct, rename="camel"):
    """Settings of one name server. Defaults are RocketMQ's, except that it listens on loopback."""

    bind_address: str = "127.0.0.1"
    listen_port: int = 9876
    order_message_enable: bool = False
    """Add the stored order configuration of a topic to its route answers."""
    return_order_topic_config_to_broker: bool = True
    """Answer a registration with the table of all order configurations."""
    need_wait_for_service: bool = False
    """Refuse route queries during the first `wait_seconds_for_service` seconds, while brokers register again."""
    wait_seconds_for_service: int = 45
    notify_min_broker_id_changed: bool = False
    """Tell the members of a group that uses acting masters when its smallest broker id changes."""
    support_acting_master: bool = False
    """Present the smallest slave of a group without a master as its master (for reading)."""
    delete_topic_with_broker_registration: bool = False
    """A registration also removes what it no longer lists; otherwise it only adds and updates."""
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    scan_not_active_broker_interval: int = 5_000
    """Milliseconds. Expired brokers are looked for at most this often."""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    """Further keys, `;` between them, that a remote request may not change."""
    config_store_path: str = ""
    kv_config_path: str = ""

    def protected_keys(self) -> frozenset[str]:
        """Keys that UPDATE_NAMESRV_CONFIG refuses."""
        listed = (key.strip() for key in self.config_black_list.split(";"))
        return PROTECTED_KEYS | {key for key in listed if key}

    def texts(self) -> dict[str, str]:
        """Every key with the text of its present value."""
        return {key: _to_text(getattr(self, attribute)) for key, attribute in KEYS.items()}

    def differences(self, before: NameServerConfig) -> dict[str, str]:
        """The keys whose values are not those of `before`, with the texts of the present ones."""
        known = before.texts()
        return {key: text for key, text in self.texts().items() if text != known[key]}

    def changed(self, values: Mapping[str, str]) -> tuple[NameServerConfig, list[str]]:
        """A copy with the keys of `values` (RocketMQ's names) replaced, and the keys that mean nothing here.

        Raises ProtectedKeyError for a key that no request changes and ConfigurationError for a key that takes effect
        only at the start or a text that is no value of the key's type; nothing is changed then.
        """
        taken: dict[str, object] = {}
        without_effect: list[str] = []
        protected = self.protected_keys()
        for key in values:
            if key in protected:
                raise ProtectedKeyError(f"{key} cannot be changed by request", remedy="change it on the server itself")
        for key, text in values.items():
            attribute = KEYS.get(key)
            if attribute is None:
                without_effect.append(key)
                continue
            present = getattr(self, attribute)
            value = _from_text(key, text, present)
            if attribute in _AT_START and value != present:
                raise ConfigurationError(
                    f"{key} takes effect only at the start", remedy="set it in the configuration file"
                )
            taken[attribute] = value
        return msgspec.structs.replace(self, **taken), without_effect


KEYS: Final[dict[str, str]] = dict(
    zip(NameServerConfig.__struct_encode_fields__, NameServerConfig.__struct_fields__, strict=True)
)
"""RocketMQ's key -> attribute of NameServerConfig."""

_AT_START: Final = frozenset({"bind_address", "listen_port"})


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _from_text(key: str, text: str, present: object) -> object:
    text = text.strip()
    if isinstance(present, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{key} = {text!r} is neither true nor false")
        return text.lower() == "true"
    if isinstance(present, int):
        try:
            number = int(text)
        except ValueError:
            raise ConfigurationError(f"{key} = {text!r} is not a whole number") from None
        if not 0 <= number <= 0x7FFF_FFFF:
            raise ConfigurationError(f"{key} = {number} is outside 0 .. {0x7FFF_FFFF}")
        return number
    return text
