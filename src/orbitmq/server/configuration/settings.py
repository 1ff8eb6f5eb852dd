"""The settings of one server process, put together from all sources.

Flags win over the environment, the environment over changes made while running, those over the file, the file over
the defaults. The result is a frozen value; each part (broker, store, name server, listener) gets its own piece.

Rules of this file
1. A wrong setting stops the start: all problems found are reported together, each with its place and a remedy.
2. Only the value that wins is judged, so a flag can switch off what a shared file asks for.
3. A key without effect is one warning, however often it is given.
4. Nothing listens beyond loopback unless told.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.errors import ConfigurationError
from orbitmq.limits.group import GROUP_DISK_WAIT_MS
from orbitmq.limits.server import CONNECTION_IDLE_MS, LOG_REPEATS_MAX, WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.replication.settings import ReplicationAck, ReplicationSettings
from orbitmq.server.access.named_users import named_users
from orbitmq.server.configuration.access_settings import AccessSettings
from orbitmq.server.configuration.kept_changes import ValueBeneath, beneath, entries_of, remarks
from orbitmq.server.configuration.keys import Key, KeyStatus, KeyTable, broker_keys, nameserver_keys, shared_keys
from orbitmq.server.configuration.proxy_file import FILE, check_same, check_switches, read_proxy_file, settings_named_in
from orbitmq.server.configuration.sources import ConfigEntry, read_environment, read_file, read_flags
from orbitmq.server.configuration.tls_settings import TlsSettings
from orbitmq.server.configuration.values import parse, to_text
from orbitmq.server.connections.listener import ListenerLimits
from orbitmq.store.settings import FlushDiskType, StoreSettings

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_NAMESERVER_PORT: Final = 9_876
DEFAULT_BROKER_PORT: Final = 10_911
DEFAULT_GRPC_PORT: Final = 8_081
"""That of RocketMQ's proxy: what its clients are usually told."""

DEFAULT_HTTP_PORT: Final = 5_557
"""RocketMQ's port for the same metrics: what scrapes it finds ours."""

TLS_FILE_KEY: Final = "tls.config.file"
"""Names a file whose keys of TLS win over those of the configuration file, as with RocketMQ."""


class Role(enum.Enum):
    """What a process can be."""

    NAMESERVER = "nameserver"
    BROKER = "broker"


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How connections are accepted and bounded, the same for every role of the process."""

    server_channel_max_idle_time_s: int = 120
    server_socket_backlog: int = 1_024
    write_buffer_high_bytes: int = 0
    """0 means the listener's own limit."""

    write_buffer_low_bytes: int = 0
    """0 means the listener's own limit."""

    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Load balancers: a PROXY preamble of theirs is believed."""

    def limits(self) -> ListenerLimits:
        """The bounds of a listener with these settings."""
        return ListenerLimits(
            idle_ms=self.server_channel_max_idle_time_s * 1_000,
            backlog=self.server_socket_backlog,
            write_high_water_bytes=self.write_buffer_high_bytes or WRITE_HIGH_WATER_BYTES,
            write_low_water_bytes=self.write_buffer_low_bytes or WRITE_LOW_WATER_BYTES,
        )


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is watched: its HTTP port, its metrics, its log lines."""

    http_enable: bool = True
    http_host: str = DEFAULT_HOST
    """Not the address of the roles: metrics stay on loopback when a broker is opened to others."""

    http_port: int = DEFAULT_HTTP_PORT
    metrics_exporter: str = "PROM"
    metrics_label: tuple[tuple[str, str], ...] = ()
    log_format: str = "text"
    log_levels: tuple[str, ...] = ("INFO",)
    """A level for everything, `part=LEVEL` for parts."""

    log_repeats_max: int = LOG_REPEATS_MAX
    log_file: Path | None = None
    """Where the lines go instead of standard error."""


class GrpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The port of a broker for clients of RocketMQ 5."""

    enable: bool = True
    port: int = DEFAULT_GRPC_PORT
    idle_ms: int = CONNECTION_IDLE_MS


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one process needs to start."""

    data: Path
    """Root of the store; the name server's own file lies in `namesrv` below it."""

    roles: frozenset[Role] = frozenset({Role.NAMESERVER, Role.BROKER})
    host: str = DEFAULT_HOST
    """Address that every role listens on."""

    nameserver_port: int = DEFAULT_NAMESERVER_PORT
    broker: BrokerSettings = BrokerSettings()
    store: StoreSettings = StoreSettings()
    nameserver: NameServerConfig = msgspec.field(default_factory=NameServerConfig)
    listener: ListenerSettings = ListenerSettings()
    watch: WatchSettings = WatchSettings()
    grpc: GrpcSettings = GrpcSettings()
    messaging: MessagingSettings = MessagingSettings()
    replication: ReplicationSettings = ReplicationSettings()
    tls: TlsSettings = TlsSettings()
    access: AccessSettings = AccessSettings()
    http_port_asked_for: bool = False
    """Whether somebody named the HTTP port: then the process does not start without it."""

    grpc_port_asked_for: bool = False
    """The same of the port for gRPC."""

    config_black_list: tuple[str, ...] = ()
    """Keys that a remote request may not change, beyond the built-in ones."""

    given: dict[str, str] = msgspec.field(default_factory=dict)
    """Every key that some source set, with the place of the value that won."""

    changed_while_running: dict[str, str] = msgspec.field(default_factory=dict)
    """Keys and texts of changes by request, kept in their own file."""

    nameserver_changes: dict[str, str] = msgspec.field(default_factory=dict)
    """The same of the name server."""

    beneath_changes: dict[str, ValueBeneath] = msgspec.field(default_factory=dict)
    """What counts without each of the changes of the broker."""

    beneath_nameserver_changes: dict[str, ValueBeneath] = msgspec.field(default_factory=dict)
    """The same of the name server."""

    warnings: tuple[str, ...] = ()
    """What the operator should read once at the start."""

    @property
    def broker_port(self) -> int:
        return self.broker.listen_port

    @property
    def kv_config_file(self) -> Path:
        """Where the name server keeps its key-value table."""
        given = self.nameserver.kv_config_path
        return Path(given) if given else self.data / "namesrv" / "kvConfig.json"

    @property
    def runtime_file(self) -> Path:
        """Where changes made by request are kept; RocketMQ ignores files it does not know in that folder."""
        return self.data / "config" / "orbitmq-changes.properties"

    @property
    def nameserver_runtime_file(self) -> Path:
        """The same for the name server."""
        return self.data / "namesrv" / "orbitmq-changes.properties"


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """The command's own flags, which win over every other source; None means not given."""

    data: Path | None = None
    host: str | None = None
    nameserver_port: int | None = None
    broker_port: int | None = None


def load_settings(
    *,
    roles: Iterable[Role],
    config: Path | None = None,
    proxy_config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    overrides: Overrides | None = None,
) -> ServerSettings:
    """The settings of a process with `roles` from all sources.

    Reads `config`, `proxy_config` (a `rmq-proxy.json`) and, when the data directory holds one, the file of changes made while
    running. Raises ConfigurationError that lists every problem.
    """
    chosen = frozenset(roles)
    if not chosen:
        raise ConfigurationError("a server without a role does nothing")
    overrides = overrides or Overrides()
    table = keys_for(chosen)
    from_file = read_file(config, table) if config is not None else []
    above = [*read_environment(environment or {}, table), *read_flags(flags, table)]
    from_file += _tls_file([*from_file, *above], table)
    warnings = _twice_in_file(from_file)
    of_proxy = read_proxy_file(proxy_config) if proxy_config is not None else []
    check_same(of_proxy, from_file)
    from_file = [*of_proxy, *from_file]

    first = _Assembly(chosen, overrides)
    first.add([*from_file, *above])
    data = first.data()
    known = ServerSettings(data=data)
    changes = _changes(known.runtime_file, table, wanted=Role.BROKER in chosen)
    names = _changes(known.nameserver_runtime_file, nameserver_keys(), wanted=Role.NAMESERVER in chosen)

    assembly = _Assembly(chosen, overrides)
    assembly.add([*from_file, *changes, *names, *above])
    defaults = _default_texts([*changes, *names])
    below, of_names = (beneath(kept, first.winners, defaults) for kept in (changes, names))
    warnings += remarks(changes, assembly.winners, below, "orbitmq broker config unset")
    warnings += remarks(names, assembly.winners, of_names, "orbitmq nameserver config unset")
    settings = assembly.settings(warnings, _texts(changes), _texts(names))
    settings = msgspec.structs.replace(settings, beneath_changes=below, beneath_nameserver_changes=of_names)
    if Role.BROKER in chosen:
        beside = None if config is None else config.parent / FILE
        if (file := proxy_config or beside) is not None:
            check_switches(file, settings.access.switches())
        if proxy_config is None and beside is not None and (unread := settings_named_in(beside)):
            warning = (
                f"{beside} is not read, so {', '.join(unread)} there has no effect: name the file with --proxy-config"
            )
            settings = msgspec.structs.replace(settings, warnings=(*settings.warnings, warning))
    return settings


def _tls_file(entries: Sequence[ConfigEntry], table: KeyTable) -> list[ConfigEntry]:
    """What stands in the file that `tls.config.file` names, if something does."""
    named = [entry for entry in entries if entry.key == TLS_FILE_KEY and entry.text.strip()]
    if not named:
        return []
    found = read_file(Path(named[-1].text.strip()).expanduser(), table)
    for entry in found:
        if not entry.key.startswith("tls.") or entry.key == TLS_FILE_KEY:
            raise ConfigurationError(f"{entry.where}: {entry.key} has no place in a file of TLS settings")
    return found


def _changes(file: Path, table: KeyTable, *, wanted: bool) -> list[ConfigEntry]:
    """What a role changed while running, if it ever did."""
    return entries_of(file, read_file(file, table)) if wanted and file.exists() else []


def _default_texts(entries: Sequence[ConfigEntry]) -> dict[str, str]:
    """Of the keys of `entries`."""
    found = {}
    if entries:
        defaults = ServerSettings(data=Path())
        for entry in entries:
            key = entry.table.find(entry.key)
            if key is not None and key.field:
                found[key.key] = to_text(present_value(defaults, key))
    return found


def present_value(settings: ServerSettings, key: Key) -> object:
    """The value that the settings field of a used key has now."""
    section, _, attribute = key.field.partition(".")
    part: object = settings if section == "server" else getattr(settings, section)
    return getattr(part, attribute)


def _texts(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    return {entry.key: entry.text for entry in entries}


def keys_for(roles: frozenset[Role]) -> KeyTable:
    """The keys that a process with `roles` knows."""
    if roles == {Role.NAMESERVER}:
        return nameserver_keys()
    return shared_keys() if Role.NAMESERVER in roles else broker_keys()


class _Assembly:
    """Collects entries, last one wins, and turns the winners into settings objects."""

    def __init__(self, roles: frozenset[Role], overrides: Overrides) -> None:
        self._roles = roles
        self._overrides = overrides
        self.winners: dict[str, tuple[Key, ConfigEntry]] = {}
        """Of each settings field the entry that counts."""
        self._problems: list[ConfigurationError] = []

    def add(self, entries: Iterable[ConfigEntry]) -> None:
        for entry in entries:
            key = entry.table.find(entry.key)
            if key is None:
                self._problems.append(_unknown(entry))
                continue
            # By field: `[nameserver] listenPort` and `nameserverPort` are one setting.
            self.winners[key.field or key.key] = (key, entry)

    def data(self) -> Path:
        """The data directory as far as it is known before everything is judged."""
        if self._overrides.data is not None:
            return self._overrides.data
        winner = self.winners.get("server.data")
        return Path(winner[1].text.strip()).expanduser() if winner else default_data_directory()

    def settings(
        self, warnings: list[str], changes: dict[str, str], nameserver_changes: dict[str, str]
    ) -> ServerSettings:
        sections: dict[str, dict[str, object]] = {
            name: {}
            for name in (
                "server",
                "broker",
                "store",
                "nameserver",
                "listener",
                "watch",
                "grpc",
                "messaging",
                "replication",
                "tls",
                "access",
            )
        }
        warnings = list(warnings)
        for key, entry in self.winners.values():
            if key.status is KeyStatus.NO_EFFECT:
                warnings.append(f"{entry.where}: {key.key} has no effect. {key.reason}")
            elif key.status is KeyStatus.NOT_YET:
                self._judge_promise(key, entry)
            else:
                try:
                    section, _, attribute = key.field.partition(".")
                    sections[section][attribute] = parse(key, entry.text, entry.where)
                except ConfigurationError as problem:
                    self._problems.append(problem)
        if self._problems:
            raise _together(self._problems)
        return self._build(sections, warnings, changes, nameserver_changes)

    def _judge_promise(self, key: Key, entry: ConfigEntry) -> None:
        if not key.asks_for_nothing(entry.text):
            harmless = " or ".join(repr(value) for value in key.accepts if value)
            self._problems.append(
                ConfigurationError(
                    f"{entry.where}: {key.key} = {entry.text.strip()!r} promises what is not built yet. {key.reason}",
                    remedy=f"set it to {harmless} or remove it" if harmless else "remove it",
                )
            )

    def _build(
        self,
        sections: dict[str, dict[str, object]],
        warnings: list[str],
        changes: dict[str, str],
        nameserver_changes: dict[str, str],
    ) -> ServerSettings:
        server = sections["server"]
        server["data"] = self.data()
        if self._overrides.host is not None:
            server["host"] = self._overrides.host
        if self._overrides.nameserver_port is not None:
            server["nameserver_port"] = self._overrides.nameserver_port
        if self._overrides.broker_port is not None:
            sections["broker"]["listen_port"] = self._overrides.broker_port
        watch = sections["watch"]
        host = str(server.get("host", DEFAULT_HOST))
        port = server.get("nameserver_port", DEFAULT_NAMESERVER_PORT)
        listener = ListenerSettings(**sections["listener"])  # type: ignore[arg-type]
        _check_together(listener)
        store = StoreSettings(**sections["store"])  # type: ignore[arg-type]
        _check_log_directory(store)
        self._check_own_log(store.store_path_commit_log)
        access = AccessSettings(**sections["access"])  # type: ignore[arg-type]
        access.check()
        self._check_access(access)
        messaging = MessagingSettings(**sections["messaging"])  # type: ignore[arg-type]
        _check_messaging(messaging)
        broker = BrokerSettings(**sections["broker"])  # type: ignore[arg-type]
        replication = ReplicationSettings(**sections["replication"])  # type: ignore[arg-type]
        replication.check(broker.broker_id)
        if replication.is_member:
            store = self._store_of_member(store, replication.ack)
        nameserver: dict[str, object] = {
            "kv_config_path": str(self.data() / "namesrv" / "kvConfig.json"),
            **sections["nameserver"],
            "bind_address": host,
            "listen_port": port,
        }
        return ServerSettings(
            **server,  # type: ignore[arg-type]
            roles=self._roles,
            broker=broker,
            store=msgspec.structs.replace(store, confirms_tail=replication.confirms_alone),
            nameserver=NameServerConfig(**nameserver),  # type: ignore[arg-type]
            listener=listener,
            watch=WatchSettings(**watch),  # type: ignore[arg-type]
            grpc=GrpcSettings(**sections["grpc"]),  # type: ignore[arg-type]
            messaging=messaging,
            replication=replication,
            tls=TlsSettings(**sections["tls"]),  # type: ignore[arg-type]
            access=access,
            http_port_asked_for="http_port" in watch,
            grpc_port_asked_for="port" in sections["grpc"],
            given={key.key: entry.where for key, entry in self.winners.values()},
            changed_while_running=changes,
            nameserver_changes=nameserver_changes,
            warnings=tuple(warnings),
        )

    def _store_of_member(self, store: StoreSettings, ack: ReplicationAck) -> StoreSettings:
        """When the log is synced follows from what its members acknowledge. How long a send waits the group decides."""
        flush = FlushDiskType.SYNC_FLUSH if ack is ReplicationAck.DISK else FlushDiskType.ASYNC_FLUSH
        if "store.flush_disk_type" in self.winners and store.flush_disk_type is not flush:
            raise ConfigurationError(
                f"flushDiskType = {store.flush_disk_type.value} and replicationAck = {ack.value}",
                remedy="remove flushDiskType: replicationAck says when a message is safe",
            )
        return msgspec.structs.replace(store, flush_disk_type=flush, sync_flush_timeout_ms=GROUP_DISK_WAIT_MS)

    def _check_access(self, access: AccessSettings) -> None:
        has_table = Role.BROKER in self._roles and access.authenticates
        if (
            not list(named_users(access))
            and access.guards_name_server
            and Role.NAMESERVER in self._roles
            and not has_table
        ):
            raise ConfigurationError(
                "nameserverAuthenticationEnabled = true, and there is no user who could change the name server",
                remedy="give innerClientAuthenticationCredentials, to the brokers as well, or initAuthenticationUser",
            )

    def _check_own_log(self, log: Path | None) -> None:
        """Several brokers can share one file and differ in `--data`: a log that the file names would be theirs together."""
        _, entry = self.winners.get("store.store_path_commit_log", (None, None))
        data = self._overrides.data
        if log is None or entry is None or data is None or entry.where.startswith("--set"):
            return
        if not log.resolve().is_relative_to(data.resolve()):
            raise ConfigurationError(
                f"{entry.where}: storePathCommitLog = {log} lies outside of the data directory {data} that was given beside it",
                remedy="remove the key, so that each data directory has its own log, or give both in one place: "
                "storePathRootDir in the file instead of --data, or the log with --set storePathCommitLog=...",
            )


def default_data_directory() -> Path:
    """Where the data go when nothing is said: `orbitmq-data` in the working directory."""
    return Path("orbitmq-data")


def _check_together(listener: ListenerSettings) -> None:
    limits = listener.limits()
    high, low = limits.write_high_water_bytes, limits.write_low_water_bytes
    if low > high:
        raise ConfigurationError(
            f"writeBufferLowWaterMark = {low} is above writeBufferHighWaterMark = {high}",
            remedy="give the low mark the smaller number",
        )


def _check_messaging(messaging: MessagingSettings) -> None:
    for lower, low, upper, high in (
        ("grpcClientConsumerMinLongPollingTimeoutMillis", messaging.polling_ms_min,
         "grpcClientConsumerMaxLongPollingTimeoutMillis", messaging.polling_ms_max),
        ("minInvisibleTimeMillsForRecv", messaging.invisible_ms_min, "maxInvisibleTimeMills", messaging.invisible_ms_max),
        ("defaultInvisibleTimeMills", messaging.renewed_invisible_ms, "maxInvisibleTimeMills", messaging.invisible_ms_max),
        ("renewAheadTimeMillis", messaging.renewal_ahead_ms, "defaultInvisibleTimeMills", messaging.renewed_invisible_ms),
        ("grpcClientProducerBackoffInitialMillis", messaging.producer_backoff_initial_ms,
         "grpcClientProducerBackoffMaxMillis", messaging.producer_backoff_max_ms),
    ):  # fmt: skip
        if low > high:
            raise ConfigurationError(
                f"{lower} = {low} is above {upper} = {high}", remedy="give the first the smaller number"
            )


def _check_log_directory(store: StoreSettings) -> None:
    """RocketMQ takes a list here; taking it for one strange name would put the log where nobody looks for it."""
    if store.store_path_commit_log is not None and "," in str(store.store_path_commit_log):
        raise ConfigurationError(
            f"storePathCommitLog = {store.store_path_commit_log} names several directories, which is not built yet",
            remedy="give one directory",
        )


def _unknown(entry: ConfigEntry) -> ConfigurationError:
    nearest = entry.table.nearest(entry.key)
    return ConfigurationError(
        f"{entry.where}: unknown key {entry.key!r}",
        remedy=f"did you mean {nearest}?" if nearest else "see the list of keys in docs/configuration.md",
    )


def _twice_in_file(entries: Iterable[ConfigEntry]) -> list[str]:
    seen: dict[tuple[str, int], str] = {}
    warnings: list[str] = []
    for entry in entries:
        earlier = seen.get((entry.key, id(entry.table)))
        if earlier is not None:
            warnings.append(f"{entry.where}: {entry.key} was given before ({earlier}); this one counts")
        seen[entry.key, id(entry.table)] = entry.where
    return warnings


def _together(problems: list[ConfigurationError]) -> ConfigurationError:
    if len(problems) == 1:
        return problems[0]
    lines = "\n".join(f"  {problem}" for problem in problems)
    return ConfigurationError(f"{len(problems)} settings are wrong:\n{lines}")
