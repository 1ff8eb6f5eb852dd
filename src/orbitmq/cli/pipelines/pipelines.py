"""`orbitmq pipeline`: everything that moves messages in bulk, as jobs of Spark. The commands follow from the pipelines' settings.

Rules of this file
1. A command's help imports its pipeline, never Spark; a session is started when everything the command line says is understood.
2. The cluster is that of every other command: a context counts where the pipeline asks a cluster and nothing replaces it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
import msgspec
import typer
from typer.core import TyperGroup, TyperOption

from orbitmq.cli.asking.shared_options import OutputCommand, cluster_options
from orbitmq.cli.shared.chosen import Output, chosen, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import print_json, show_rows, write_text
from orbitmq.client.connect_settings import MEANINGS
from orbitmq.clock import SystemClock
from orbitmq.instants import span
from orbitmq.spark.pipelines.names import PIPELINES, pipeline_named
from orbitmq.spark.pipelines.settings import Form, NamedSetting, TimeKind, from_texts, settings_of

if TYPE_CHECKING:
    from orbitmq.cli.asking.contexts import Target

NAME_SERVER: Final = "name-server"
OF_THE_CONTEXT: Final = frozenset({NAME_SERVER, *(name.replace("_", "-") for name in MEANINGS)})
"""Settings that the options of the cluster, variables and contexts give."""

SPARK: Final = ("master", "remote", "conf")

MASTER_HELP: Final = "Where Spark runs its tasks. Else SPARK_REMOTE, or local[*]."
REMOTE_HELP: Final = "A Spark Connect server to use instead."
REMOTE_FORM: Final = "sc://HOST:PORT"
CONF_HELP: Final = "A setting of Spark; may be repeated."

MasterOption = Annotated[str | None, typer.Option("--master", metavar="MASTER", help=MASTER_HELP, show_default=False)]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", metavar=REMOTE_FORM, help=REMOTE_HELP, show_default=False)
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help=CONF_HELP, show_default=False)
]


class PipelineGroup(TyperGroup):
    """The pipelines there are, and the commands of this file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*PIPELINES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return pipeline_command(cmd_name) if cmd_name in PIPELINES else super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=PipelineGroup,
    help="Bulk jobs on Spark: archive, replay, schedule, redrive, report, files of them, services.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command(cls=OutputCommand)
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE.toml", help="Steps, with the settings they share.", show_default=False)
    ],
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
) -> None:
    """Run the steps of a file, one after the other, in one session."""
    from orbitmq.spark.pipelines.pipeline_file import read_file

    said = read_file(file)
    where = {"master": master, "remote": remote}
    if master is None and remote is None:
        where = {"master": said.master, "remote": said.remote}
    _run(said.steps, **where, conf={**said.conf, **_conf(conf or ())})


@app.command(cls=OutputCommand)
def serve(
    file: Annotated[str, typer.Argument(metavar="FILE.toml", help="Streams and jobs.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong with the file, and start nothing.")] = False,
    log_format: Annotated[str, typer.Option("--log-format", help="Form of the log lines: text or json.")] = "text",
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
) -> None:
    """Run the streams and scheduled jobs of a file in one session, until SIGTERM or Ctrl-C.

    Exit code 0 after a stop in order, 7 where a batch under way was given up, 1 where Spark is gone.
    """
    from orbitmq.spark.pipelines.serving.service import serve as serve_file
    from orbitmq.spark.pipelines.serving.service_file import read_service_file

    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"--log-format is {log_format!r}, neither text nor json")
    said = read_service_file(file)
    if check:
        parts = [
            {"part": part.name, "kind": "stream" if part.is_stream else "job", "does": part.does} for part in said.parts
        ]
        show_rows(parts, columns=("part", "kind", "does"), empty="nothing")
        return
    end = serve_file(said, log_format=log_format, master=master, remote=remote, conf=_conf(conf or ()))
    if end.exit_code:
        raise typer.Exit(end.exit_code)


@app.command(name="submit-script", cls=OutputCommand)
def submit_script() -> None:
    """Print where the program for spark-submit is, which takes the same words."""
    import importlib.util

    found = importlib.util.find_spec("orbitmq.spark.pipelines.submit")
    assert found is not None
    if chosen_output() is Output.JSON:
        print_json({"path": found.origin})
    else:
        write_text(str(found.origin))


def pipeline_command(name: str) -> click.Command:
    """The command of one pipeline."""
    function = pipeline_named(name)
    settings = settings_of(function.settings_type)

    def call(**words: Any) -> None:
        from orbitmq.spark.pipelines.pipeline_file import Step

        spark = {word: words.pop(word) for word in SPARK}
        given = _given(settings, words)
        step = Step(name, function, from_texts(settings, given, SystemClock().now_ms()))
        _run((step,), master=spark["master"], remote=spark["remote"], conf=_conf(spark["conf"]))

    asks_cluster = any(setting.name == NAME_SERVER for setting in settings)
    return OutputCommand(
        name,
        callback=call,
        help=inspect.getdoc(function),
        short_help=(inspect.getdoc(function) or "").partition("\n")[0],
        rich_markup_mode=None,
        params=[
            *(option for setting in settings if setting.name not in OF_THE_CONTEXT for option in _options(setting)),
            *_spark_options(),
            *(cluster_options(with_timeout=False) if asks_cluster else ()),
        ],
    )


def _options(setting: NamedSetting) -> Sequence[click.Parameter]:
    words = [setting.parameter, f"--{setting.name}"]
    rest: dict[str, Any] = {"help": setting.setting.help, "required": setting.required}
    if setting.type is bool and setting.form is Form.ONE:
        words[1] += f"/--no-{setting.name}" if setting.default else ""
        return (TyperOption(param_decls=words, is_flag=True, default=bool(setting.default), **rest),)
    kind = click.Choice(list(setting.choices)) if setting.choices else click.STRING
    metavar = None if setting.choices else setting.metavar
    several = setting.form is not Form.ONE
    default = None if several else _default(setting)
    return (
        TyperOption(
            param_decls=words, type=kind, metavar=metavar, multiple=several, default=default, show_default=True, **rest
        ),
    )


def _spark_options() -> Sequence[click.Parameter]:
    return (
        TyperOption(param_decls=["--master"], type=str, metavar="MASTER", help=MASTER_HELP),
        TyperOption(param_decls=["--remote"], type=str, metavar=REMOTE_FORM, help=REMOTE_HELP),
        TyperOption(param_decls=["--conf"], type=str, metavar="NAME=VALUE", multiple=True, help=CONF_HELP),
    )


def _default(setting: NamedSetting) -> str | None:
    """As somebody would write it."""
    if setting.default is None or setting.default == "":
        return None
    return span(setting.default) if setting.setting.kind is TimeKind.SPAN else str(setting.default)


def _given(settings: Sequence[NamedSetting], words: Mapping[str, Any]) -> dict[str, list[str]]:
    """The words of the command line by the names of settings, with the cluster of the context where one is asked."""
    given: dict[str, list[str]] = {}
    for setting in settings:
        value = words.get(setting.parameter)
        if isinstance(value, bool):
            given[setting.name] = [str(value).lower()]
        elif isinstance(value, tuple | list):
            if value:
                given[setting.name] = [str(one) for one in value]
        elif value is not None:
            given[setting.name] = [str(value)]
    if any(setting.name == NAME_SERVER for setting in settings):
        replaced = any(setting.setting.replaces_cluster and setting.name in given for setting in settings)
        if not replaced or chosen("name_servers") is not None or chosen("context") is not None:
            from orbitmq.cli.asking.cluster_access import target

            given.update(_cluster(target()))
    return given


def _cluster(asked: Target) -> dict[str, list[str]]:
    """The settings that lead to a cluster. A secret that is known here itself goes into the environment, which local tasks inherit."""
    if asked.known is not None:
        os.environ.update(ORBITMQ_ACCESS_KEY=asked.known.access_key, ORBITMQ_SECRET_KEY=asked.known.secret_key)
    found = {NAME_SERVER: [asked.name_servers]}
    for name, value in msgspec.to_builtins(asked.settings).items():
        found[name.replace("_", "-")] = [str(value).lower() if isinstance(value, bool) else value]
    return found


def _conf(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"--conf {name!r} is not of the form spark.NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _run(steps: Any, *, master: str | None, remote: str | None, conf: Mapping[str, str | bool | int | float]) -> None:
    from orbitmq.spark.pipelines.starting import run_for_command

    as_json = chosen_output() is Output.JSON
    if not run_for_command(steps, master=master, remote=remote, conf=conf, as_json=as_json):
        raise typer.Exit(ExitCode.FAILED)
