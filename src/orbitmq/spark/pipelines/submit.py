"""The program for spark-submit: `spark-submit --master ... submit.py archive --to s3://lake/orders --name-server ... --topic orders`.

Words are those of `orbitmq pipeline`, which prints the path of this file with `orbitmq pipeline submit-script`. Every worker needs orbitmq
in its Python. The master and the settings of Spark are spark-submit's.

Rules of this file
1. Nothing is decided here: settings say which words there are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, OrbitError, PortTakenError, StoreLockedError
from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named
from orbitmq.spark.pipelines.pipeline_file import Step, read_file
from orbitmq.spark.pipelines.settings import Form, NamedSetting, from_texts, settings_of
from orbitmq.spark.pipelines.starting import run_for_command

FAILED, USAGE, IN_USE = 1, 2, 6


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 when something could not be done, 2 for a wrong command line; of `serve` those of `orbitmq pipeline serve`."""
    try:
        words = words_of(arguments)
        if words.pipeline == "serve":
            from orbitmq.spark.pipelines.serving.service import serve
            from orbitmq.spark.pipelines.serving.service_file import read_service_file

            said = read_service_file(words.file)._replace(master=None, remote=None)  # spark-submit's master counts
            return serve(said, log_format=words.log_format).exit_code
        return 0 if run_for_command(steps_of(words)) else FAILED
    except OrbitError as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, PortTakenError | StoreLockedError):
            return IN_USE
        return USAGE if isinstance(error, ConfigurationError) else FAILED


def words_of(arguments: Sequence[str]) -> argparse.Namespace:
    """The words by their names. Leaves the process (SystemExit) after `--help` and for words that are no command."""
    parser = argparse.ArgumentParser(prog="submit.py", description="Pipelines of orbitmq.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="pipeline", metavar="PIPELINE", required=True)
    for name in PIPELINES:
        command = commands.add_parser(name, allow_abbrev=False)
        for setting in settings_of(pipeline_named(name).settings_type):
            _add(command, setting)
    commands.add_parser("run", help="the steps of a file").add_argument("file", metavar="FILE.toml")
    serve = commands.add_parser("serve", help="the streams and jobs of a file, until SIGTERM", allow_abbrev=False)
    serve.add_argument("file", metavar="FILE.toml")
    serve.add_argument("--log-format", choices=("text", "json"), default="text", help="form of the log lines")
    return parser.parse_args(arguments)


def steps_of(words: argparse.Namespace) -> tuple[Step, ...]:
    """What the words ask for."""
    if words.pipeline == "run":
        return read_file(words.file).steps
    function = pipeline_named(words.pipeline)
    settings = settings_of(function.settings_type)
    given = {}
    for setting in settings:
        value = getattr(words, setting.parameter)
        if value is not None:
            given[setting.name] = value if isinstance(value, list) else [value]
    return (Step(words.pipeline, function, from_texts(settings, given, SystemClock().now_ms())),)


def _add(command: argparse.ArgumentParser, setting: NamedSetting) -> None:
    words = [f"--{setting.name}"]
    text = setting.setting.help.replace("%", "%%")
    if setting.type is bool and setting.form is Form.ONE:
        command.add_argument(*words, dest=setting.parameter, nargs="?", const="true", metavar="true|false", help=text)
        command.add_argument(f"--no-{setting.name}", dest=setting.parameter, action="store_const", const="false")
    else:
        action = "store" if setting.form is Form.ONE else "append"
        command.add_argument(*words, dest=setting.parameter, action=action, metavar=setting.metavar, help=text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
