"""What each deployment keeps when its first machine fails: lost messages, times without writing and reading, throughput; one command.

usage: deployments.py [--only orbitmq|java] [--deployments TITLE,TITLE] [--faults KILLED,POWER,NETWORK] [--json FILE] [--write-docs]

Every broker has a machine of its own, which is a network namespace: Linux that lets its users make some. RocketMQ's pairs need a JDK and
Maven. What each fault is, and what somebody does about it, stands at the top of deployment_life.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import Kind
from rig.toolchain import BROKER_VERSION, Missing, cache_folder, java_build

from deployment_life import ACTS_S, BODY_BYTES, CUT_S, POWER_S, SENDERS, Deployment, Fault, Life, Outcome
from machines import in_own_network
from measure import Invalid
from orbitmq.errors import ClientError
from table import write_into

DOCUMENT: Final = rigpath.REPOSITORY / "docs" / "copies-benchmark.md"
DEPLOYMENTS: Final = (
    Deployment("one master", Kind.ORBITMQ, 1, None),
    Deployment("two masters", Kind.ORBITMQ, 2, None),
    Deployment("asynchronous slave", Kind.ORBITMQ, 1, "async"),
    Deployment("synchronous slave", Kind.ORBITMQ, 1, "sync"),
    Deployment("RocketMQ, asynchronous slave", Kind.JAVA, 1, "async"),
    Deployment("RocketMQ, synchronous slave", Kind.JAVA, 1, "sync"),
)
Found = dict[tuple[str, Fault], Outcome]


def is_measured(deployment: Deployment, fault: Fault) -> bool:
    """Whose files are not recorded cannot lose what was not synced."""
    return deployment.kind is Kind.ORBITMQ or fault is not Fault.POWER


def throughput(found: Found, deployment: Deployment) -> float:
    """Median of its lives; 0 where it was not measured. Files that are recorded are slower, and not counted."""
    rates = [outcome.rate for (title, _), outcome in found.items() if title == deployment.title and outcome.rate]
    return statistics.median(rates) if rates else 0.0


def table(found: Found) -> str:
    lines = ["| deployment | what fails | sends accepted | lost | no writes for | no reads for | throughput |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    alone = throughput(found, DEPLOYMENTS[0])
    for deployment in DEPLOYMENTS:
        for fault in Fault:
            outcome = found.get((deployment.title, fault))
            if outcome is None:
                continue
            lost = str(outcome.lost) + (
                f" (and {outcome.lost_others} that were not SEND_OK)" if outcome.lost_others else ""
            )
            if outcome.undelivered:
                lost += f"; {outcome.undelivered} not delivered"
            rate = throughput(found, deployment)
            share = f"{rate / alone:.2f}" if rate and alone else "-"
            lines.append(
                f"| {deployment.title} | {fault.value} | {outcome.accepted:,} | {lost} | {outcome.no_writes_s:.1f} s "
                f"| {outcome.no_reads_s:.1f} s | {share} |"
            )
    return "\n".join(lines)


def circumstances(began: float) -> str:
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return (
        f"{SENDERS} senders with our client, bodies of {BODY_BYTES} bytes, asynchronous flush everywhere. Somebody acts {ACTS_S:g} s after "
        f"the fault; a network comes back after {CUT_S:g} s, a machine without a slave after {POWER_S:g} s. "
        f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores ({model.split(':')[1].strip()}) for everything together, "
        f"Linux {platform.release()}, Python {platform.python_version()}, RocketMQ {BROKER_VERSION}. Load average {began:.2f} before. "
        "Made by `benchmarks/deployments.py`."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", type=Kind, choices=list(Kind), help="one kind of broker alone")
    add("--deployments", help="comma list: " + ", ".join(deployment.title for deployment in DEPLOYMENTS))
    add(
        "--faults",
        default=",".join(fault.name for fault in Fault),
        help="comma list: " + ", ".join(fault.name for fault in Fault),
    )
    add("--folder", type=Path, help="where the stores go (default: beside the build cache)")
    add("--json", type=Path, help="write all figures there")
    add("--write-docs", action="store_true", help=f"put the table between the markers of docs/{DOCUMENT.name}")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes that were started end with this one
    titles = options.deployments.split(",") if options.deployments else [deployment.title for deployment in DEPLOYMENTS]
    kinds = [options.only] if options.only else list(Kind)
    chosen = [deployment for deployment in DEPLOYMENTS if deployment.title in titles and deployment.kind in kinds]
    faults = [Fault[name] for name in options.faults.split(",")]
    began, found, failed = os.getloadavg()[0], Found(), False
    folder = Path(tempfile.mkdtemp(prefix="deployments-", dir=options.folder or cache_folder()))
    try:
        if any(deployment.kind is Kind.JAVA for deployment in chosen):
            java_build(BROKER_VERSION)
        for deployment in chosen:
            for fault in filter(lambda fault, deployment=deployment: is_measured(deployment, fault), faults):  # type: ignore[misc]
                # no comma in the name: RocketMQ would take it for two paths
                place = folder / f"{DEPLOYMENTS.index(deployment)}-{fault.name}"
                try:
                    outcome = Life(place, deployment, fault).run()
                except (Invalid, ClientError, AssertionError) as error:
                    failed = True
                    print(f"{deployment.title}, {fault.value}: no figures: {error}", file=sys.stderr, flush=True)
                    continue
                found[deployment.title, fault] = outcome
                print(f"{deployment.title}, {fault.value}: {outcome}", file=sys.stderr, flush=True)
    except Missing as error:
        print(f"the benchmark stops: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(
                json.dumps(
                    {f"{title}, {fault.value}": outcome._asdict() for (title, fault), outcome in found.items()},
                    indent=1,
                )
            )
        shutil.rmtree(folder, ignore_errors=True)
    text = f"{table(found)}\n\n{circumstances(began)}"
    print(text)
    if options.write_docs:
        write_into(DOCUMENT, text, "deployments")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        in_own_network()
    except Missing as error:
        sys.exit(f"the benchmark cannot run here: {error}")
    sys.exit(main())
