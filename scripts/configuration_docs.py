"""Write docs/configuration.md from the table of keys; with --check only compare.

Run from the repository's root: `python scripts/configuration_docs.py [--check]`. Exit code 1 when the file is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from generated_pages import write_or_compare

from orbitmq.server.configuration.keys import (
    KEYS_OF_ACCESS,
    Key,
    KeyStatus,
    Touches,
    broker_keys,
    nameserver_keys,
    proxy_keys,
)
from orbitmq.server.configuration.settings import ServerSettings, present_value
from orbitmq.server.configuration.values import allowed, to_text

TARGET = Path(__file__).parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

This file is generated from the table of keys by `python scripts/configuration_docs.py`. The table is data:
[broker_keys.json](../src/orbitmq/server/configuration/broker_keys.json),
[proxy_keys.json](../src/orbitmq/server/configuration/proxy_keys.json) and
[nameserver_keys.json](../src/orbitmq/server/configuration/nameserver_keys.json).

Keys are RocketMQ's, spelled as in its `broker.conf`, and an existing `broker.conf` can be given as it is, as can
the `rmq-proxy.json` of a proxy:

```
orbitmq serve --data DIR --config broker.conf --proxy-config rmq-proxy.json --set flushDiskType=SYNC_FLUSH
```

## Where values come from

From strongest to weakest:

1. the command's own flags (`--data`, `--host`, `--nameserver-port`, `--broker-port`, `--grpc-port`, `--http-port`),
2. `--set key=value`, as often as needed,
3. environment variables: `ORBITMQ_` and the key in upper snake case (`ORBITMQ_FLUSH_DISK_TYPE`) or as it is
   (`ORBITMQ_flushDiskType`),
4. changes made by request while the server ran (`orbitmq broker config set`, `mqadmin updateBrokerConfig`, `updateNamesrvConfig`), kept in
   `config/orbitmq-changes.properties` and `namesrv/orbitmq-changes.properties` of the data directory,
5. the files given by `--config` (TOML when its name ends in `.toml`, RocketMQ's properties form otherwise) and by `--proxy-config` (JSON),
6. the defaults below. They are RocketMQ 5.3's, except that orbitmq listens on `127.0.0.1` unless told.

A start warns of each change of point 4 that differs from what would count without it, and says where that stands;
`orbitmq broker config get` says the same of a running broker, and `orbitmq broker config unset BROKER KEY` forgets the change, at once;
so do `orbitmq nameserver config get` and `orbitmq nameserver config unset KEY` for name servers.

`orbitmq config check FILE` says of each key of a file what becomes of it here, and whether a server would start with it;
`orbitmq doctor --config FILE` says what is wrong in it or without effect.

In a TOML file keys stand at the top or under `[broker]`; `[nameserver]` holds the name server's own. In any other file
that serves both roles, `listenPort` is the broker's and `nameserverPort` the name server's.

Keys of the proxy are keys of the broker as well, and may stand in its file; where both have a key of one name, as `messageDelayLevel`,
it is the broker's there. A `rmq-proxy.json` is read where it is named. What both files say of one setting has to be the same: one value
counts for every port.

## What becomes of a key

* A key that is in no table is an error that names the nearest known key. The tables hold every key of RocketMQ 5.3, 5.4 and 5.5.
* A *used* key does what it does in RocketMQ. A value out of bounds is an error; nothing is clamped.
* A key *without effect* is known and has no meaning here: one warning at the start. Old spellings such as `mapedFileSizeCommitLog`,
  which RocketMQ 5 passes over in silence, are among them: the warning names the key of today.
* A key whose *promise is not kept yet* stops the start unless it is set to one of the harmless values listed. Every key
  that touches durability, security, visibility or time is either used or in this group; the exceptions are
  `timerWheelEnable` and `recallMessageEnable`, which only warn until timers exist.
"""

OF_PROXY = """\
`rmq-proxy.json` may have the broker's keys of access as well (`initAuthenticationUser` and its like), and the switches
`authenticationEnabled`, `authorizationEnabled` and `enableACL` (the broker's `aclEnable`), which have to be those of the broker.

"""


def render() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    of_proxy = [key for key in proxy_keys() if key.key not in KEYS_OF_ACCESS]
    of_broker = [key for key in broker_keys() if key not in of_proxy]
    only_nameserver = [key for key in nameserver_keys() if broker_keys().find(key.key) is None]
    parts.append("\n## Used keys of the broker\n\n" + _used(of_broker))
    parts.append(
        "\n## Used keys of the name server\n\nWhen it runs alone, `listenPort` and `bindAddress` are its own.\n\n"
        + _used(key for key in nameserver_keys() if key.key == "listenPort" or key in only_nameserver)
    )
    parts.append("\n## Promises not kept yet\n\n" + _not_yet([*of_broker, *only_nameserver]))
    parts.append("\n## Keys without effect\n\n" + _no_effect([*of_broker, *only_nameserver]))
    parts.append("\n## Keys of RocketMQ's proxy\n\n" + OF_PROXY + _used(of_proxy))
    parts.append("\n### Promises of the proxy not kept yet\n\n" + _not_yet(of_proxy))
    parts.append("\n### Keys of the proxy without effect\n\n" + _no_effect(of_proxy))
    return "".join(parts)


def _used(keys: Iterable[Key]) -> str:
    settings = ServerSettings(data=Path("orbitmq-data"))
    lines = ["| key | default | allowed | changes while running | meaning |", "| --- | --- | --- | --- | --- |"]
    for key in keys:
        if key.status is KeyStatus.USED:
            default = to_text(present_value(settings, key))
            shown = f"`{default}`" if default else "not set" if key.optional else ""
            bounds = allowed(key) + (f" {key.unit}" if key.unit else "")
            lines.append(f"| `{key.key}` | {shown} | {bounds} | {'yes' if key.runtime else ''} | {key.reason} |")
    return "\n".join(lines) + "\n"


def _not_yet(keys: Iterable[Key]) -> str:
    blocks = []
    for reason, group in _by_reason(keys, lambda key: key.status is KeyStatus.NOT_YET):
        touches = next(key.touches for key in group)
        concerns = "" if touches is Touches.NOTHING else f" (touches {touches.value})"
        names = ", ".join(
            f"`{key.key}`"
            + (f" (harmless: {' or '.join(f'`{a}`' for a in key.accepts if a)})" if any(key.accepts) else "")
            for key in group
        )
        blocks.append(f"* {reason}{concerns}\n  {names}\n")
    return "\n".join(blocks)


def _no_effect(keys: Iterable[Key]) -> str:
    blocks = []
    for reason, group in _by_reason(keys, lambda key: key.status is KeyStatus.NO_EFFECT):
        blocks.append(f"* {reason}\n  {', '.join(f'`{key.key}`' for key in group)}\n")
    return "\n".join(blocks)


def _by_reason(keys: Iterable[Key], wanted: Callable[[Key], bool]) -> list[tuple[str, list[Key]]]:
    chosen = sorted((key for key in keys if wanted(key)), key=lambda key: (key.reason, key.key.lower()))
    return [(reason, list(group)) for reason, group in groupby(chosen, key=lambda key: key.reason)]


if __name__ == "__main__":
    sys.exit(write_or_compare({TARGET: render()}, sys.argv[1:], __file__))
