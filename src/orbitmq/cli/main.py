"""Entry point: the tree of commands, and errors as one line with a remedy.

Rules of this file
1. A command's module is imported when the command is called for; the list of commands needs none of them.
2. An error of ours is one line on standard error and its exit code; a defect keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from orbitmq.cli.asking.shared_options import cluster_options
from orbitmq.cli.lazy_group import CommandEntry, LazyGroup
from orbitmq.cli.shared.exit_codes import ExitCode, exit_code_of
from orbitmq.errors import OrbitError

COMMANDS: Final = {
    "serve": CommandEntry(
        "orbitmq.cli.servers.serving", "Run name server and broker in one process, in the foreground."
    ),
    "nameserver": CommandEntry("orbitmq.cli.servers.nameservers", "Run a name server; read and change one that runs."),
    "broker": CommandEntry("orbitmq.cli.servers.brokers", "Run a broker; show, configure and count one that runs."),
    "doctor": CommandEntry("orbitmq.cli.doctor.doctor", "Check this machine, and whether a running server answers."),
    "config": CommandEntry(
        "orbitmq.cli.servers.configurations", "Configuration files: check what becomes of each key here."
    ),
    "context": CommandEntry(
        "orbitmq.cli.asking.context_commands", "Contexts: names for clusters, and the one that is asked."
    ),
    "cluster": CommandEntry(
        "orbitmq.cli.clusters.clusters",
        "The cluster: brokers, what is missing, rates, round-trip times, restart, export, import.",
    ),
    "replica": CommandEntry(
        "orbitmq.cli.replicas.replicas", "Masters and slaves: who follows whom, and how far behind."
    ),
    "topic": CommandEntry(
        "orbitmq.cli.topics", "Topics: list, show, create, complete, update, delete, route, stats, producers."
    ),
    "group": CommandEntry("orbitmq.cli.groups.groups", "Consumer groups: list, settings, lag, members, offsets."),
    "message": CommandEntry("orbitmq.cli.messages.messages", "Messages: show, send, redrive dead letters."),
    "timer": CommandEntry(
        "orbitmq.cli.timers.timers", "Timer messages: list, show, recall, reschedule, stats, export, import."
    ),
    "transaction": CommandEntry(
        "orbitmq.cli.messages.transactions", "Transactions: list what is undecided, show one, resume its checks."
    ),
    "access": CommandEntry("orbitmq.cli.access.access", "Users and policies: who may do what, and why."),
    "send": CommandEntry("orbitmq.cli.messages.sending", "Send one message, or one for every line of standard input."),
    "worker": CommandEntry("orbitmq.cli.servers.workers", "Run the handlers of a module until it is told to stop."),
    "tail": CommandEntry("orbitmq.cli.messages.tailing", "Print the messages of a topic as they arrive."),
    "bench": CommandEntry("orbitmq.cli.benches.benches", "Measure a cluster: sending, consuming, delays."),
    "recurring": CommandEntry(
        "orbitmq.cli.timers.recurring", "Recurring messages: put, list, show, pause, resume, delete, merge, preview."
    ),
    "pipeline": CommandEntry(
        "orbitmq.cli.pipelines.pipelines",
        "Bulk jobs on Spark: archive, replay, schedule, redrive, report, files of them, services.",
    ),
    "archive": CommandEntry(
        "orbitmq.cli.pipelines.archives",
        "Archives: check, compact, vacuum, delete the rows of a key, keep latest rows, import old ones.",
    ),
    "store": CommandEntry(
        "orbitmq.cli.stores.stores", "Store directories: check, dump, stat, backup, verify, restore, mend, hand-over."
    ),
    "protocol": CommandEntry("orbitmq.cli.protocol_tables", "The protocol: codes, coverage."),
    "completion": CommandEntry("orbitmq.cli.completion", "Print a shell's completion script."),
    "mqadmin": CommandEntry(
        "orbitmq.cli.mqadmin", "RocketMQ's administration commands: which are understood, and as what."
    ),
    "version": CommandEntry("orbitmq.cli.versions", "Show versions."),
}

EPILOG: Final = (
    "Exit codes: 0 ok, 1 findings or failure, 2 usage or configuration, 3 no server reached, 4 refused by a server, "
    "5 not found, 6 store or port in use, 7 given up at a stop, 130 interrupted."
)


def root() -> LazyGroup:
    """The whole tree of commands."""
    return LazyGroup(
        COMMANDS,
        name="orbitmq",
        help="A message broker with first-class delayed messages that speaks Apache RocketMQ's protocols.",
        epilog=EPILOG,
        no_args_is_help=True,
        params=[*cluster_options(with_timeout=False, with_tls=False), _version_option()],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
        rich_markup_mode=None,
    )


def _version_option() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            click.echo(f"orbitmq {version('orbitmq')}")
            ctx.exit()

    text = "Show the version and leave; `orbitmq version` tells more."
    return click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)


def main() -> None:
    """Run the command line and leave with its exit code."""
    _open_closed_output()
    try:
        root()(prog_name="orbitmq")
    except OrbitError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(exit_code_of(error))
    except OSError as error:  # a file that cannot be read or written, a disk that fails
        click.echo(f"error: {error}", err=True)
        sys.exit(ExitCode.FAILED)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _open_closed_output() -> None:
    """Whoever closed standard output or error (`>&-`) wants nothing to be read there; and no file of ours may get its number."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main()
