"""What can be run with a seed that nobody has tried: campaigns, fuzzers, property tests, and suites on a bad or a busy machine.

Rules of this file
1. A row says how one piece of work is started; it takes seconds where `quick`, and minutes elsewhere. Exit code 0: nothing was found.
2. The same seed repeats the same work, but for what the machine's own timing decides (chaos, Spark).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

SEED: Final = "{seed}"


class Explorer(NamedTuple):
    """arguments: of Python, with `{seed}` where the seed goes. limit_s: after that it counts as hung. one_core: with a core taken away."""

    name: str
    arguments: tuple[str, ...]
    quick: bool = True
    limit_s: int = 600
    environment: Mapping[str, str] = {}
    one_core: bool = False

    def command(self, seed: int) -> list[str]:
        return [sys.executable, *(word.replace(SEED, str(seed)) for word in self.arguments)]

    def variables(self, seed: int) -> dict[str, str]:
        return {name: value.replace(SEED, str(seed)) for name, value in self.environment.items()}


def _crashes(mode: str, flush: str, count: int) -> Explorer:
    return Explorer(
        f"crashes-{mode}-{flush.removesuffix('_FLUSH').lower()}",
        ("-m", "tests.crash.campaign", "--mode", mode, "--flush", flush, "--count", str(count), "--seed", SEED),
    )


def _fuzzer(parser: str) -> Explorer:
    return Explorer(f"fuzz-{parser}", (f"tests/fuzz/fuzz_{parser}.py", "--count", "10000", "--seed", SEED))


def _suite(name: str, *paths: str, limit_s: int, one_core: bool = False, **environment: str) -> Explorer:
    return Explorer(
        name, ("-m", "pytest", "-q", "-p", "no:cacheprovider", *paths), False, limit_s, environment, one_core
    )


EXPLORERS: Final = (
    *(_crashes(mode, flush, 5) for flush in ("ASYNC_FLUSH", "SYNC_FLUSH") for mode in ("kill", "power")),
    Explorer("timers", ("-m", "tests.property.timers_campaign", "--seeds", "8", "--seed", SEED)),
    Explorer("timers-near", ("-m", "tests.property.timers_campaign", "--near", "--seeds", "20", "--seed", SEED)),
    Explorer("pending-set", ("-m", "tests.property.pending_set_campaign", "--steps", "1000", "--seed", SEED)),
    *(
        Explorer(
            f"lives-{of}",
            ("-m", "tests.property.lives_campaign", "--of", of, "--lives", "10", "--length", "5", "--seed", SEED),
        )
        for of in ("pop", "receives", "replicas", "sends", "transactions")
    ),
    *(
        Explorer(f"lives-{of}", ("-m", "tests.property.lives_campaign", "--of", of, "--lives", "8", "--length", "2", "--seed", SEED))
        for of in ("pairs", "members")
    ),
    *(_fuzzer(parser) for parser in ("frames", "fastjson", "records", "properties", "filters", "pops", "extended", "plain_access")),
    *(_fuzzer(parser) for parser in ("first_bytes", "tls_records", "policies", "closed_door", "hpack", "http2", "grpc_messages")),
    *(_fuzzer(parser) for parser in ("grpc_calls", "replication", "etcd")),
    Explorer(
        "properties",
        ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/property", "-k", "not planted", f"--hypothesis-seed={SEED}"),
        quick=False,
        limit_s=1_800,
    ),
    Explorer("edges", ("-m", "tests.edges.campaign", "--rounds", "1", "--seed", SEED), quick=False, limit_s=1_800),
    Explorer("pair-faults", ("-m", "tests.chaos.pair_campaign", "--seeds", "1", "--seed", SEED), quick=False, limit_s=1_800),
    Explorer("group-faults", ("-m", "tests.chaos.group_campaign", "--seeds", "1", "--seed", SEED), quick=False, limit_s=1_800),
    _suite("bad-network", "tests/chaos/test_bad_network.py", limit_s=1_800, CHAOS_SEED=SEED, CHAOS_SECONDS="60"),
    _suite("chaos-one-core", "tests/chaos", limit_s=3_600, one_core=True, CHAOS_SEED=SEED),
    Explorer("bulk-kills", ("tests/spark/killed_loads.py", "--kills", "10", "--seed", SEED), quick=False, limit_s=3_600),
    Explorer("spark-kills", ("tests/spark/killed_writes.py", "--runs", "1", "--seed", SEED), quick=False, limit_s=3_600),
    _suite("spark-one-core", "tests/spark", limit_s=10_800, one_core=True),
)  # fmt: skip
