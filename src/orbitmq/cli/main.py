"""Entry point: the tree of commands, and errors as one line with a remedy.

Rules of this file
1. Command modules are light: they import typer and, inside a command, what that command needs.
2. An error of ours is one line on standard error and its exit code; a defect keeps its traceback.
"""

from __future__ import annotations

import sys

import typer

from orbitmq.cli import doctor, groups, messages, protocol_tables, sending, serving, stores, tailing, topics
from orbitmq.cli.exit_codes import ExitCode, exit_code_of
from orbitmq.cli.output import Output, OutputOption, note, show_record
from orbitmq.errors import OrbitError

app = typer.Typer(
    name="orbitmq",
    help="A message broker with first-class delayed messages that speaks Apache RocketMQ's protocols.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 findings or failure, 2 usage or configuration, 3 no server reached, "
    "4 refused by a server, 5 not found, 6 store in use, 130 interrupted.",
)

app.command("serve")(serving.serve)
app.command("nameserver")(serving.nameserver)
app.command("broker")(serving.broker)
app.command("send")(sending.send)
app.command("tail")(tailing.tail)
app.add_typer(topics.app, name="topic")
app.add_typer(groups.app, name="group")
app.add_typer(messages.app, name="message")
app.add_typer(stores.app, name="store")
app.add_typer(protocol_tables.app, name="protocol")
app.command("doctor")(doctor.doctor)


@app.command()
def version(output: OutputOption = Output.TABLE) -> None:
    """Show versions: ours, the RocketMQ version we present, Python; and whether the innermost loops run compiled."""
    import platform
    from importlib.metadata import version as installed

    from orbitmq import leaf
    from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name

    show_record(
        {
            "orbitmq": installed("orbitmq"),
            "speaks_as_rocketmq": version_name(OUR_VERSION),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "innermost_loops": leaf.DESCRIPTION,
        },
        output,
    )


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app(prog_name="orbitmq")
    except OrbitError as error:
        note(f"error: {error}")
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
