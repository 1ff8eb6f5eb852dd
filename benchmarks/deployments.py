"""What each deployment keeps when its first machine fails: lost messages, times without writing and reading, throughput; one command.

usage: deployments.py [--only orbitmq|java] [--deployments TITLE;TITLE] [--faults KILLED,POWER,NETWORK] [--fresh] [--json FILE]
       [--write-docs]

Every broker has a machine of its own, which is a network namespace: Linux that lets its users make some. RocketMQ's pairs and its DLedger
need a JDK and Maven; replicated groups an etcd. What each fault is, and what somebody does about it, stands at the top of
deployment_life.py. Lives whose outcome the file has are not lived again, unless `--fresh` is given: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build

from deployment_life import ACTS_S, BODY_BYTES, CUT_S, POWER_S, SENDERS, Deployment, Fault, Life
from machines import in_own_network
from measure import Invalid
from orbitmq.errors import ClientError
from results import Results
from table import machine, write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "copies-benchmark.md"
DEPLOYMENTS: Final = (
    Deployment("one master", Kind.ORBITMQ, 1, None),
    Deployment("two masters", Kind.ORBITMQ, 2, None),
    Deployment("asynchronous slave", Kind.ORBITMQ, 1, "async"),
    Deployment("synchronous slave", Kind.ORBITMQ, 1, "sync"),
    *(Deployment(f"group of {members}", Kind.ORBITMQ, 1, None, members) for members in (2, 3, 5)),
    Deployment("group of 3, `memory`", Kind.ORBITMQ, 1, None, 3, "memory"),
    Deployment("RocketMQ, asynchronous slave", Kind.JAVA, 1, "async"),
    Deployment("RocketMQ, synchronous slave", Kind.JAVA, 1, "sync"),
    Deployment("RocketMQ, DLedger of 3", Kind.JAVA, 1, None, 3),
)


def row(deployment: Deployment, fault: Fault) -> str:
    """Its key in the results."""
    return f"{deployment.title}, {fault.value}"


def is_measured(deployment: Deployment, fault: Fault) -> bool:
    """Whose files are not recorded cannot lose what was not synced."""
    return deployment.kind is Kind.ORBITMQ or fault is not Fault.POWER


def throughput(results: Results, deployment: Deployment) -> float:
    """Median of its lives; 0 where it was not measured. Files that are recorded are slower, and not counted."""
    rates = [rate for fault in Fault for rate in results.values(row(deployment, fault), "rate") if rate]
    return statistics.median(rates) if rates else 0.0


def table(results: Results) -> str:
    lines = ["| deployment | what fails | sends accepted | lost | no writes for | no reads for | throughput | load |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    alone = throughput(results, DEPLOYMENTS[0])
    for deployment in DEPLOYMENTS:
        rate = throughput(results, deployment)
        share = f"{rate / alone:.2f}" if rate and alone else "-"
        for fault in Fault:
            for outcome in results.rows.get(row(deployment, fault), []):
                lines.append(
                    f"| {deployment.title} | {fault.value} | {outcome['accepted']:,.0f} | {lost(outcome)} "
                    f"| {outcome['no_writes_s']:.1f} s | {outcome['no_reads_s']:.1f} s | {share} | {outcome['load1']:.1f} |"
                )
    return "\n".join(lines)


def lost(outcome: Mapping[str, float]) -> str:
    text = f"{outcome['lost']:.0f}"
    if outcome["lost_others"]:
        text += f" (and {outcome['lost_others']:.0f} that were not SEND_OK)"
    if outcome["undelivered"]:
        text += f"; {outcome['undelivered']:.0f} not delivered"
    return text


def circumstances(results: Results) -> str:
    return (
        f"{SENDERS} senders with our client, bodies of {BODY_BYTES} bytes, asynchronous flush everywhere but in groups of ours, whose "
        f"members have a message on their disks (or in memory, where that is said). Somebody acts {ACTS_S:g} s after the fault; a network "
        f"comes back after {CUT_S:g} s, a machine without a slave after {POWER_S:g} s. {results.days()}, {machine()}, RocketMQ "
        f"{BROKER_VERSION}. Load: the average of the machine before the life. Made by `benchmarks/deployments.py`."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", type=Kind, choices=list(Kind), help="one kind of broker alone")
    add("--deployments", help="list: " + "; ".join(deployment.title for deployment in DEPLOYMENTS))
    add(
        "--faults",
        default=",".join(fault.name for fault in Fault),
        help="comma list: " + ", ".join(fault.name for fault in Fault),
    )
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--fresh", action="store_true", help="live again what the file has")
    add("--json", type=Path, help="where the figures are kept (default: deployments.json beside the build cache)")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes that were started end with this one
    titles = options.deployments.split(";") if options.deployments else [deployment.title for deployment in DEPLOYMENTS]
    kinds = [options.only] if options.only else list(Kind)
    chosen = [deployment for deployment in DEPLOYMENTS if deployment.title in titles and deployment.kind in kinds]
    faults = [Fault[name] for name in options.faults.split(",")]
    lives = [(deployment, fault) for deployment in chosen for fault in faults if is_measured(deployment, fault)]
    results = Results(options.json or cache_folder() / "deployments.json")
    if options.fresh:
        results.forget([row(*life) for life in lives])
    lives = [life for life in lives if not results.count(row(*life))]
    folder = Path(tempfile.mkdtemp(prefix="deployments-", dir=options.folder or cache_folder()))
    try:
        if any(deployment.kind is Kind.JAVA for deployment, _ in lives):
            java_build(BROKER_VERSION)
        failed = [life for life in lives if not lived(results, folder, *life)]
    except Missing as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = f"{table(results)}\n\n{circumstances(results)}"
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "deployments")
    return 1 if failed else 0


def lived(results: Results, folder: Path, deployment: Deployment, fault: Fault) -> bool:
    """Whether it has figures."""
    load = os.getloadavg()[0]
    # no comma in the name: RocketMQ would take it for two paths
    place = folder / f"{DEPLOYMENTS.index(deployment)}-{fault.name}"
    try:
        outcome = Life(place, deployment, fault).run()
    except (Invalid, ClientError, AssertionError) as error:
        print(f"{row(deployment, fault)}: no figures: {error}", file=sys.stderr, flush=True)
        return False
    results.add(row(deployment, fault), outcome._asdict(), load)
    print(f"{row(deployment, fault)}: {outcome}", file=sys.stderr, flush=True)
    return True


if __name__ == "__main__":
    try:
        in_own_network()
    except Missing as error:
        sys.exit(f"the benchmark cannot run here: {error}")
    sys.exit(main())
