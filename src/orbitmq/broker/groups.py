"""The consumer groups of this broker and what each may do.

Source: RocketMQ broker, subscription groups; `config/subscriptionGroup.json`.

Rules of this file
1. Built-in groups always exist. An unknown group is made at first sight when the settings or its name allow it.
2. `known` never creates; `get` may.
3. Saving follows the topic table: on a thread, before the answer to what changed it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from orbitmq.broker.attributes import GROUP_ATTRIBUTES, alter_attributes
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.clock import Clock
from orbitmq.limits.broker import FORBIDDEN_PAIRS_MAX, GROUP_CONFIG_BYTES_MAX, GROUPS_MAX
from orbitmq.protocol.names import BUILT_IN_GROUPS, group_name_problem, is_system_group, topic_name_problem
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.protocol.remoting.commands import ResponseCode

READING_FORBIDDEN = 0b100
"""The bit of a forbidden mask that stops reading; what RocketMQ 5.3 writes."""


_BUILT_IN: Final[Mapping[str, SubscriptionGroupConfig]] = {
    group.name: SubscriptionGroupConfig(group_name=group.name) for group in BUILT_IN_GROUPS
}


class _RecordedGroup(msgspec.Struct, omit_defaults=True):
    """What a record says of a group, which may be known for what it may not read alone."""

    config: SubscriptionGroupConfig | None = None
    forbidden: dict[str, int] = {}


class GroupTable(RecordedSavedTable):
    record_name: ClassVar[str] = "groups"

    def __init__(self, settings: BrokerSettings, file: TableFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self._settings = settings
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Make the built-in groups, then merge the file over them. Raises `StoreDamagedError` for an unusable file."""
        self._groups = dict(_BUILT_IN)
        document = self._file.load()
        if document is None:
            self.dirty = True
            return
        saved = read_table(document, SubscriptionGroupWrapper, "subscriptionGroup.json", "a group table")
        self._groups.update(saved.subscription_group_table)
        self._forbidden = saved.forbidden_table
        self.version = saved.data_version

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        groups, version = dict(self._groups), self.version
        forbidden = {group: dict(table) for group, table in self._forbidden.items()}
        return lambda: {"dataVersion": version, "forbiddenTable": forbidden, "subscriptionGroupTable": groups}

    # --- records ----------------------------------------------------------------------------------------------------

    def recorded_keys(self) -> Iterable[str]:
        configured = [name for name, config in self._groups.items() if _BUILT_IN.get(name) != config]
        return dict.fromkeys([*configured, *self._forbidden])

    def recorded_value(self, key: str) -> bytes | None:
        config, forbidden = self._groups.get(key), self._forbidden.get(key, {})
        if config == _BUILT_IN.get(key) and not forbidden:
            return None
        return msgspec.json.encode(_RecordedGroup(config, forbidden))

    def values_of(self, told: SubscriptionGroupWrapper) -> dict[str, bytes]:
        """What records would say of the groups of another table."""
        groups, forbidden = told.subscription_group_table, told.forbidden_table
        return {
            name: msgspec.json.encode(_RecordedGroup(groups.get(name), forbidden.get(name, {})))
            for name in dict.fromkeys([*groups, *forbidden])
            if groups.get(name) != _BUILT_IN.get(name) or forbidden.get(name)
        }

    def _take_one(self, key: str, value: bytes | None) -> None:
        said = (
            _RecordedGroup(_BUILT_IN.get(key))
            if value is None
            else msgspec.json.decode(value, type=_RecordedGroup, strict=False)
        )
        if said.config is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = said.config
        if said.forbidden:
            self._forbidden[key] = said.forbidden
        else:
            self._forbidden.pop(key, None)

    # --- reading ----------------------------------------------------------------------------------------------------

    def known(self, group: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(group)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created when it is unknown and may be; None otherwise (also for an illegal name)."""
        config = self._groups.get(group)
        if config is not None:
            return config
        if not (self._settings.auto_create_subscription_group or is_system_group(group)):
            return None
        if group_name_problem(group) is not None or len(self._groups) >= GROUPS_MAX:
            return None
        config = SubscriptionGroupConfig(group_name=group)
        self._groups[group] = config
        self._changed_key(group)
        return config

    def __len__(self) -> int:
        return len(self._groups)

    def names(self) -> list[str]:
        return list(self._groups)

    def wrapper(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(sorted(self._groups.items())),
            forbidden_table=dict(self._forbidden),
            data_version=self.version,
        )

    def reading_forbidden(self, group: str, topic: str) -> bool:
        return bool(self._forbidden.get(group, {}).get(topic, 0) & READING_FORBIDDEN)

    # --- changes ----------------------------------------------------------------------------------------------------

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group. Its `attributes` are changes, with signs; what they do not name stays.

        Raises `Refusal` for an illegal name or attribute, or beyond a bound.
        """
        problem = group_name_problem(config.group_name)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        size = len(config.encode())
        if size > GROUP_CONFIG_BYTES_MAX:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the settings of group {config.group_name!r} have {size} bytes; at most {GROUP_CONFIG_BYTES_MAX} are kept",
            )
        if config.group_name not in self._groups and len(self._groups) >= GROUPS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group {config.group_name!r} cannot be created: this broker already has {GROUPS_MAX} groups",
            )
        current = self._groups.get(config.group_name)
        known = {} if current is None else current.attributes
        attributes = alter_attributes(known, config.attributes, GROUP_ATTRIBUTES, creating=current is None)
        config = msgspec.structs.replace(config, attributes=attributes)
        if current != config:
            self._groups[config.group_name] = config
            self._changed_key(config.group_name)

    def delete(self, group: str) -> bool:
        """Forget a group and its forbidden table; False when it was not there."""
        was_forbidden = self._forbidden.pop(group, None) is not None
        if self._groups.pop(group, None) is None:
            if was_forbidden:
                self._changed_key(group)
            return False
        self._changed_key(group)
        return True

    def forbid_reading(self, group: str, topic: str, *, forbidden: bool) -> None:
        """Set or clear the reading bit. Clearing the last bit of a mask drops the group's whole table, as RocketMQ does.

        Raises `Refusal` for illegal names, or beyond the bound.
        """
        problem = group_name_problem(group) or topic_name_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        table = dict(self._forbidden.get(group, {}))
        mask = table.get(topic, 0)
        mask = mask | READING_FORBIDDEN if forbidden else mask & ~READING_FORBIDDEN
        if mask:
            if topic not in table and sum(map(len, self._forbidden.values())) >= FORBIDDEN_PAIRS_MAX:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"reading is already forbidden for {FORBIDDEN_PAIRS_MAX} pairs of group and topic; allow some again",
                )
            table[topic] = mask
            self._forbidden[group] = table
        else:
            self._forbidden.pop(group, None)
        self._changed_key(group)
