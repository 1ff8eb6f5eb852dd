"""The checks of `orbitmq doctor`, each a function that looks at one thing.

Rules of this file
1. A check never raises for what it finds; it reports. It fails only for what stops a server, and warns for the rest.
2. Bounds are RocketMQ's file sizes and this project's limits, not taste.
"""

from __future__ import annotations

import enum
import json
import os
import resource
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq import leaf
from orbitmq.clock import Clock, SystemClock
from orbitmq.limits.broker import ONCE_MEMORY_NOTICE_RATIO
from orbitmq.limits.cli import DOCTOR_ANSWER_TIMEOUT_S, DOCTOR_FILES_MIN, DOCTOR_READY_BYTES_MAX
from orbitmq.limits.server import CERTIFICATE_EXPIRY_NOTICE_MS, CONNECTIONS_MAX, DESCRIPTORS_MAX

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection

    from orbitmq.store.files import DiskUsage
    from orbitmq.store.settings import StoreSettings

PYTHON_MIN: Final = (3, 11)
PROBE_BYTES: Final = 64 * 1024 * 1024
CLOCK_MIN_MS: Final = 1_735_689_600_000
"""1 January 2025: a clock before that was never set."""


class Level(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Result(NamedTuple):
    """One line of the report."""

    level: Level
    check: str
    found: str
    remedy: str = ""


class Ports(NamedTuple):
    """Where a server listens, or will."""

    nameserver: int
    broker: int
    grpc: int
    http: int


def all_checks(
    data: Path, host: str, ports: Ports, clock: Clock | None = None, config: Path | None = None
) -> list[Result]:
    """All checks in the order in which a start would meet them. `config`: whose limits of disk use count, where it can be used."""
    from orbitmq.server.connections.descriptors import mapping_limit

    clock = clock or SystemClock()
    return [
        python_version(sys.version_info[:2]),
        event_loop(),
        innermost_loops(),
        *compression(),
        *open_files(*resource.getrlimit(resource.RLIMIT_NOFILE), mapping_limit()),
        *data_directory(data, config),
        *take_over(data),
        *hand_over(data),
        *copies(data),
        wall_clock(clock.now_ms(), newest_change_ms(data)),
        port("name server", host, ports.nameserver),
        port("broker", host, ports.broker),
        grpc_port(host, ports.grpc),
        *readiness(ports.http),
    ]


def configuration(file: Path) -> list[Result]:
    """Whether a server would start with this file, and what in it means nothing here."""
    from orbitmq.server.configuration.explaining import Fate, explain, problem_of
    from orbitmq.server.configuration.settings import Role

    roles = frozenset(Role)
    remedy = f"orbitmq config check {file} tells of each key"
    if (problem := problem_of(file, roles)) is not None:
        return [Result(Level.FAIL, "configuration", problem, remedy)]
    keys = explain(file, roles)
    parts = [f"{sum(key.fate in (Fate.USED, Fate.HARMLESS) for key in keys)} keys of {file} count"]
    for fate, said in ((Fate.NO_EFFECT, "without effect here"), (Fate.OVERRULED, "given again further down")):
        if names := dict.fromkeys(key.key for key in keys if key.fate is fate):
            parts.append(f"{said}: {', '.join(names)}")
    if len(parts) > 1:
        return [Result(Level.WARN, "configuration", ", ".join(parts), remedy)]
    return [Result(Level.OK, "configuration", parts[0])]


def python_version(version: tuple[int, ...]) -> Result:
    """The interpreter is one we are tested on."""
    found = ".".join(map(str, version))
    if version < PYTHON_MIN:
        return Result(Level.FAIL, "python", found, "install CPython 3.11 or newer")
    return Result(Level.OK, "python", found)


def event_loop() -> Result:
    """uvloop is there; asyncio's own loop works but costs more CPU."""
    if find_spec("uvloop") is None:
        return Result(Level.WARN, "event loop", "asyncio", "install uvloop for less CPU per message")
    return Result(Level.OK, "event loop", "uvloop")


def innermost_loops() -> Result:
    """The compiled leaf is there; plain Python does the same and costs more CPU."""
    if leaf.IS_COMPILED:
        return Result(Level.OK, "innermost loops", leaf.DESCRIPTION)
    if os.environ.get(leaf.SWITCH) == "off":
        remedy = f"unset {leaf.SWITCH}"
    elif (Path(leaf.__file__).parents[3] / "setup.py").is_file():
        remedy = "run `make leaf`"
    else:
        remedy = "where a C compiler is: pip install --force-reinstall --no-deps --no-binary orbitmq orbitmq"
    return Result(Level.WARN, "innermost loops", leaf.DESCRIPTION, f"{remedy}, for less CPU per message")


def compression() -> list[Result]:
    """The codecs that clients may use for bodies; zlib is part of Python."""
    return [
        Result(Level.OK, f"codec {name}", "present")
        if find_spec(module) is not None
        else Result(Level.WARN, f"codec {name}", "missing", f"install {package} to read bodies compressed with it")
        for name, module, package in (("zstd", "zstandard", "zstandard"), ("lz4", "lz4.frame", "lz4"))
    ]


def open_files(soft: int, hard: int, mappings: int) -> list[Result]:
    """File descriptors, for connections and files of the store, and mappings of files. A server raises the soft limit itself."""
    from orbitmq.server.connections.descriptors import OTHER_MAPPINGS, ConnectionRoom, file_room

    descriptors = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    connections = ConnectionRoom(descriptors).open_max
    room = file_room(descriptors, mappings)
    limit = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    found = (
        f"{limit}: {connections} connections, and {room.open_max} open and {room.mapped_max} mapped files of the store"
    )
    remedy = f"allow more: ulimit -Hn {CONNECTIONS_MAX * 4 // 3}, or LimitNOFILE of systemd"
    if soft != hard:
        found += f"; a server raises its limit from {soft}"
    if descriptors < DOCTOR_FILES_MIN:
        files = Result(Level.FAIL, "open files", found, remedy)
    elif connections < CONNECTIONS_MAX:
        files = Result(Level.WARN, "open files", found, f"for {CONNECTIONS_MAX} connections: {remedy}")
    else:
        files = Result(Level.OK, "open files", found)
    if room.mapped_max < file_room(descriptors).mapped_max:
        wanted = f"sysctl -w vm.max_map_count={file_room(descriptors).mapped_max + OTHER_MAPPINGS}"
        return [files, Result(Level.WARN, "mappings", f"{mappings}, too few for the files that may be open", wanted)]
    return [files, Result(Level.OK, "mappings", str(mappings))]


def store_settings(config: Path | None) -> StoreSettings:
    """Those of a configuration file; the defaults without one, or where a server would not start with it."""
    from orbitmq.errors import ConfigurationError
    from orbitmq.server.configuration.settings import Role, load_settings
    from orbitmq.store.settings import StoreSettings

    if config is None:
        return StoreSettings()
    try:
        return load_settings(roles=frozenset(Role), config=config).store
    except ConfigurationError:  # `configuration` tells it
        return StoreSettings()


def data_directory(data: Path, config: Path | None = None) -> list[Result]:
    """The directory, or the nearest existing one above it: writable, enough space, sparse files, preallocation."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return [Result(Level.FAIL, "data directory", f"{place} is not writable", "choose another one with --data")]
    results = [Result(Level.OK, "data directory", str(data if data.exists() else f"{data} (will be made)"))]
    from orbitmq.store.files import OsFiles

    return [*results, disk_space(OsFiles().disk_usage(place), store_settings(config)), *_file_system(place)]


def disk_space(usage: DiskUsage, settings: StoreSettings) -> Result:
    """How full the disk is, and what a broker with these settings does about it."""
    from orbitmq.store.retention import DiskLevel, disk_level, disk_limits, use_text

    doing = {
        DiskLevel.FULL: "sends are refused",
        DiskLevel.FORCE: "the oldest files go before their time",
        DiskLevel.CLEAN: "expired files go at any hour",
    }
    found, level = use_text([usage]), disk_level(usage, settings)
    for limit in disk_limits(settings):
        if limit.level is level:
            bad = Level.FAIL if level is DiskLevel.FULL else Level.WARN
            return Result(bad, "disk space", found, f"free some: {doing[level]} {limit.text}")
    first = disk_limits(settings)[0]
    return Result(Level.OK, "disk space", f"{found}; {doing[first.level]} {first.text}")


def take_over(data: Path) -> list[Result]:
    """What keeps a broker from starting on a store that RocketMQ wrote."""
    from orbitmq.server.roles.takeover import facts_of
    from orbitmq.store.files import OsFiles

    facts = facts_of(data, OsFiles()) if data.is_dir() else []
    return [Result(Level.FAIL, "store of RocketMQ", fact.found, fact.remedy) for fact in facts]


def hand_over(data: Path) -> list[Result]:
    """Whether RocketMQ would start on the store; nothing where there is none with timer messages."""
    from orbitmq.store.files import OsFiles
    from orbitmq.timing.rocketmq.fence import is_fenced
    from orbitmq.timing.rocketmq.wheel import WHEEL_FILE

    check = "store for RocketMQ"
    if not (data / WHEEL_FILE).exists():
        return []
    if is_fenced(OsFiles(), data):
        found = "refused by RocketMQ: a broker of ours serves it, or was killed"
        return [
            Result(Level.WARN, check, found, f"to go back to RocketMQ: stop it, or `orbitmq store hand-over {data}`")
        ]
    return [Result(Level.OK, check, "exact: RocketMQ can go on with it")]


def copies(data: Path) -> list[Result]:
    """What the directory keeps of copies of its log; nothing where it knows of none."""
    from orbitmq.errors import StoreDamagedError
    from orbitmq.replication.kept_state import REPLICATION_FILE, read_state

    check, path = "copies", data / "config" / REPLICATION_FILE
    try:
        state = read_state(json.loads(path.read_bytes()), "")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, StoreDamagedError) as problem:
        return [Result(Level.FAIL, check, f"{path}: {problem}", "a broker does not start with it: restore it")]
    if state.aside:
        return [
            Result(
                Level.WARN,
                check,
                f"the next start puts the store aside, into {state.aside}, and copies anew",
                "start it",
            )
        ]
    if state.member is not None:
        found = f"member {state.member.name} of group {state.member.group}, in epoch {state.member.epoch}"
        return [Result(Level.OK, check, f"{found}; --engine and --group ask how that is")]
    if state.promoted is not None:
        found, keys = f"made {state.promoted.value} by a command", f"brokerRole={state.promoted.value} and brokerId=0"
        return [Result(Level.WARN, check, found, f"write it into the settings: {keys}")]
    if state.demoted is not None:
        found, keys = f"made slave {state.demoted.id} by a command", f"brokerRole=SLAVE and brokerId={state.demoted.id}"
        return [Result(Level.WARN, check, found, f"write it into the settings: {keys}")]
    if state.seeding_until:
        return [Result(Level.OK, check, f"a slave that is being seeded, up to {state.seeding_until}")]
    if state.slaves:
        ids = ", ".join(map(str, sorted(state.slaves)))
        return [Result(Level.OK, check, f"slaves {ids} have followed; how far they are says `orbitmq replica status`")]
    return []


def _file_system(place: Path) -> list[Result]:
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".orbitmq-doctor-") as file:
            os.ftruncate(file.fileno(), PROBE_BYTES)
            sparse = os.fstat(file.fileno()).st_blocks * 512 < PROBE_BYTES
            try:
                os.posix_fallocate(file.fileno(), 0, 4096)
                allocates = True
            except OSError:
                allocates = False
    except OSError as error:
        return [Result(Level.FAIL, "file system", str(error), "choose another directory with --data")]
    return [
        Result(Level.OK, "sparse files", "yes")
        if sparse
        else Result(Level.WARN, "sparse files", "no", "an empty store takes 1.5 GiB here; choose smaller file sizes"),
        Result(Level.OK, "preallocation", "yes")
        if allocates
        else Result(Level.WARN, "preallocation", "no", "a full disk is noticed at the write instead of before it"),
    ]


def wall_clock(now_ms: int, newest_ms: int) -> Result:
    """The clock was set, and stands behind no file of the store: due times are wall-clock times."""
    from orbitmq.cli.shared.instants import instant

    if now_ms < CLOCK_MIN_MS:
        return Result(Level.FAIL, "clock", instant(now_ms), "set the clock; due times depend on it")
    if newest_ms > now_ms + 1_000:
        found = f"{instant(now_ms)}, {(newest_ms - now_ms) // 1000} s behind the newest file of the store"
        return Result(Level.WARN, "clock", found, "check the time service; delayed messages would come late")
    return Result(Level.OK, "clock", instant(now_ms))


def newest_change_ms(data: Path) -> int:
    """Latest modification of a file of the commit log, 0 when there is none."""
    folder = data / "commitlog"
    if not folder.is_dir():
        return 0
    return max((path.stat().st_mtime_ns // 1_000_000 for path in folder.iterdir()), default=0)


def port(role: str, host: str, number: int) -> Result:
    """The port is free, or one of ours answers on it."""
    check = f"{role} port"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
    except OSError as problem:
        answer = _ask(host, number)
        if answer is None:
            remedy = "choose another port, or stop what listens there"
            return Result(Level.FAIL, check, f"{host}:{number} {problem.strerror}, and no RocketMQ answers", remedy)
        return Result(Level.OK, check, f"{host}:{number} in use by a server that answers ({answer})")
    return Result(Level.OK, check, f"{host}:{number} is free")


def grpc_port(host: str, number: int) -> Result:
    """The port for clients of RocketMQ 5 is free, or a server there speaks HTTP/2, as gRPC does."""
    check, where = "grpc port", f"{host}:{number}"
    remedy = "give the server another port with --grpc-port, or stop what listens there"
    for tls in (None, trusting_anybody(("h2",))):  # the second for a server that takes nothing but TLS
        try:
            if _begins_http2(host, number, tls):
                how = "over TLS" if tls is not None else "without TLS"
                return Result(Level.OK, check, f"{where} in use by a server that speaks HTTP/2 {how}")
        except ConnectionRefusedError:
            return Result(Level.OK, check, f"{where} is free")
        except OSError as problem:
            if tls is not None:
                return Result(Level.WARN, check, f"{where} is in use, and no HTTP/2 is spoken there: {problem}", remedy)
    return Result(Level.WARN, check, f"{where} is in use, and no HTTP/2 is spoken there", remedy)


def _begins_http2(host: str, number: int, tls: ssl.SSLContext | None) -> bool:
    """Whether the server begins with its settings. OSError where it does not answer in time."""
    from orbitmq.protocol.http2.frames import HEAD_BYTES, PREFACE, ErrorCode, FrameType, goaway_frame, settings_frame

    with socket.create_connection((host, number), timeout=DOCTOR_ANSWER_TIMEOUT_S) as plain:
        stream = plain if tls is None else tls.wrap_socket(plain)
        stream.sendall(PREFACE + settings_frame(b"") + goaway_frame(0, ErrorCode.NO_ERROR))
        head = b""
        while len(head) < HEAD_BYTES and (data := stream.recv(HEAD_BYTES - len(head))):
            head += data
        return len(head) == HEAD_BYTES and head[3] == FrameType.SETTINGS


def readiness(number: int) -> list[Result]:
    """The port for metrics and health is free, or a server there says that it is ready, or why it is not; how long its certificate is
    good, and how full its memory of idempotent sends is."""
    import http.client

    check, where = "http port", f"127.0.0.1:{number}"
    try:
        try:
            facts = _ready_facts(http.client.HTTPConnection("127.0.0.1", number, timeout=DOCTOR_ANSWER_TIMEOUT_S))
        except http.client.RemoteDisconnected:  # it takes nothing but TLS
            facts = _ready_facts(
                http.client.HTTPSConnection(
                    "127.0.0.1", number, timeout=DOCTOR_ANSWER_TIMEOUT_S, context=trusting_anybody()
                )
            )
        reasons = [str(reason["text"]) for reason in facts.get("reasons", ())]
        left_s = facts.get("certificateExpirySeconds")
        more = [] if left_s is None else [certificate(int(left_s))]
        if (memory := facts.get("onceMemory")) is not None:
            more.append(once_memory(str(memory["owner"]), float(memory["ratio"])))
    except ConnectionRefusedError:
        return [Result(Level.OK, check, f"{where} is free")]
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError) as problem:
        remedy = "give the server another port with --http-port, or stop what listens there"
        return [Result(Level.WARN, check, f"{where} is in use, and no orbitmq answers: {problem}", remedy)]
    if reasons:
        return [Result(Level.FAIL, check, f"{where}: not ready: {'; '.join(reasons)}", "see docs/operations.md"), *more]
    return [Result(Level.OK, check, f"{where}: the server there is ready"), *more]


def once_memory(owner: str, ratio: float) -> Result:
    """The owner of keys of idempotent sends that is nearest to its bound has room for more."""
    check, found = "once keys", f"{owner!r} has {ratio:.0%} of the memory that it may have"
    remedy = "take shorter windows or sooner epochs, or raise idempotenceMemoryMax: docs/howto/send-once.md"
    if ratio >= 1:
        return Result(Level.FAIL, check, f"{found}: its new keys are refused", remedy)
    if ratio > ONCE_MEMORY_NOTICE_RATIO:
        return Result(Level.WARN, check, f"{found}; at 100% its new keys are refused", remedy)
    return Result(Level.OK, check, found)


def certificate(left_s: int) -> Result:
    """The certificate of the server is good for another week."""
    check, remedy = "certificate", "replace it and its key; the server takes them while it runs"
    if left_s <= 0:
        return Result(Level.FAIL, check, f"expired {-left_s // 3_600} hours ago: clients refuse it", remedy)
    if left_s * 1_000 <= CERTIFICATE_EXPIRY_NOTICE_MS:
        return Result(Level.WARN, check, f"expires in {left_s // 3_600} hours", remedy)
    return Result(Level.OK, check, f"expires in {left_s // 86_400} days")


def _ready_facts(connection: HTTPConnection) -> dict[str, Any]:
    try:
        connection.request("GET", "/readyz")
        facts: dict[str, Any] = json.loads(connection.getresponse().read(DOCTOR_READY_BYTES_MAX))
        return facts
    finally:
        connection.close()


def trusting_anybody(alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """For questions without secrets, to a server of this machine whose certificate may be what is wrong."""
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def _ask(host: str, number: int) -> str | None:
    """The version that a remoting server on the port answers with, plainly or over TLS; None when none answers in time."""
    return _ask_by(host, number, None) or _ask_by(host, number, trusting_anybody())


def _ask_by(host: str, number: int, tls: ssl.SSLContext | None) -> str | None:
    from orbitmq.errors import ProtocolError
    from orbitmq.protocol.remoting.codes import RequestCode
    from orbitmq.protocol.remoting.connection import Connection
    from orbitmq.protocol.remoting.frame import encode, request
    from orbitmq.protocol.remoting.versions import version_name

    frames = Connection()
    try:
        with socket.create_connection((host, number), timeout=DOCTOR_ANSWER_TIMEOUT_S) as plain:
            stream = plain if tls is None else tls.wrap_socket(plain)
            stream.sendall(encode(request(RequestCode.GET_BROKER_CONFIG)))
            while data := stream.recv(65_536):
                for command in frames.receive_data(data):
                    return version_name(command.version)
    except (OSError, ProtocolError):
        return None
    return None
