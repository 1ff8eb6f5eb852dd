"""Write docs/cli.md from the commands; with --check only compare.

Run from the repository's root: `python scripts/cli_docs.py [--check]`. Exit code 1 when the file is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from generated_pages import write_or_compare

from orbitmq.cli.asking.shared_options import cluster_options, output_options
from orbitmq.cli.main import EPILOG, root
from orbitmq.cli.mqadmin_aliases import ALIASES

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# Command line

This file is generated from the commands by `python scripts/cli_docs.py`.

Results go to standard output, everything else to standard error. `--json` gives every field, with the protocol's own values, as one
JSON document; commands that go on (`tail`, `group lag --watch`) print one document a line. An error is one line that says what to
do. {epilog}

## Which cluster is asked

Strongest first: `--name-server` (`--namesrv`, `-n`); `--context`; the variable `ORBITMQ_NAMESRV`; the variable `ORBITMQ_CONTEXT`;
RocketMQ's variable `NAMESRV_ADDR`; the context in use; `127.0.0.1:9876`. `orbitmq context show` says which it would be, and why.
Requests are signed with `ORBITMQ_ACCESS_KEY`, `ORBITMQ_SECRET_KEY` and `ORBITMQ_SECURITY_TOKEN`, else with what the context says.
TLS is taken setting by setting: the options `--tls...`, else the variables `ORBITMQ_TLS`, `ORBITMQ_TLS_TRUSTED` and so on, one for each
option, else the context. `--no-tls` takes all of it away. See [Encrypt connections](howto/tls.md).

```
orbitmq context add staging "10.0.0.1:9876;10.0.0.2:9876"
orbitmq context add production 10.1.0.1:9876 --timeout-ms 10000 --tls --access-key ops --secret-command "pass show mq/ops"
orbitmq context use staging
orbitmq --context production group lag billing
```

A context may name the brokers of its cluster (`orbitmq context add --expect`, `orbitmq context expect`): `cluster show`, `cluster
check` and `group lag` say then which are missing, and end with 1.

Contexts stand in `orbitmq/contexts.toml` under `$XDG_CONFIG_HOME` (else `~/.config`), readable for their owner only.

## Completion

`eval "$(orbitmq completion bash)"` in `~/.bashrc` (`zsh` in `~/.zshrc`, after `compinit`), or `orbitmq completion fish >
~/.config/fish/completions/orbitmq.fish`. Contexts are completed, and topics, groups and clusters of a cluster that answers within
0.4 s.

## Dead letters

`orbitmq message redrive GROUP` sends the dead letters of a group again, as new messages to the topics they came from. All groups
of such a topic get them; with `--only-group` they go through the group's retry topic instead, which nobody else reads. They keep
body, flag, keys, tag, ordering key and user properties; attempts and delays start anew; the property `ORBITMQ_REDRIVEN_FROM`
names the message that died. The dead letter stays where it is until retention takes it.

A run covers what is there when it starts. Its place is an offset of the group `orbitmq-redrive` (with a filter, of a group whose
name also has the filter's digest, so that each filter has a place of its own); delete that group to forget it. A run that was killed
repeats up to a second's worth of what it had sent; orbitmq's broker recognises these (not in a retry topic, so not with
`--only-group`), and those that another filter's run sent before, and stores none of them twice. RocketMQ's broker stores them again.
`--again` begins at the oldest and sends everything once more.
`--since` and `--until` as spans (`10m`) are other instants in every run: give instants to go on with a run.

## Timer messages

`orbitmq timer` looks at and changes what was sent with `--at` or `--after` (or by a program with a due time) and waits. A
message is named by its recall handle, which `orbitmq send --json` and `timer list --json` show, by `--topic` and `--id`, or
by `--topic` and `--key`. A key that several have changes nothing without `--all`; `--dry-run` shows what is meant. `recall`
and `reschedule` end with 0 when something was changed, with 5 when nothing is known of such a message, else with 1: it was
delivered or recalled before, or is being delivered.

`timer stats` draws a strip: one character for each span of time, `·` for none, `▁` to `█` by how many fall due in it beside
the fullest span. Instants lie ahead here: `--until 7d` is in seven days. Options of `timer` that RocketMQ's broker cannot
serve are refused with its name; it recalls by handle.

`timer export` prints one JSON document a line, with the body in base64; `timer import` sends such lines again as new messages
with the same due times. A line's message is named by the id of the one it comes from (scope `orbitmq-timer-import`, or
`--scope`), so an import that is repeated, or was killed and runs again, stores nothing twice. The original and its import are
two messages: recall the original, or import elsewhere. Delay levels are not exported.

## What benchmarks measure

`orbitmq bench` is one process with one client. Its own CPU stands beside every rate: when it used all of a core, the cluster may be
faster than what is shown. `send` measures from the call to the answer; with `--rate` from when a message was due, so that a slow
answer also counts for those that waited behind it. `consume` and `delay` compare clocks of two machines when sender or broker are
elsewhere. Bodies are not compressed. Messages before the measurement, for warming up, are not counted.
"""

SHARED = """\
## Options of many commands

The commands marked *cluster* take all of these, the others the last two.
"""


def render() -> str:
    """The whole document."""
    epilog = EPILOG[0].lower() + EPILOG[1:]
    parts = [INTRODUCTION.format(epilog=f"The {epilog}"), SHARED]
    parts.append(_options([*cluster_options(), *output_options()]))
    for path, command in _walk(root(), ()):
        parts.append(_command(path, command))
    parts.append(_aliases())
    return "\n".join(parts)


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if path:
        yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                yield from _walk(below, (*path, name))


def _command(path: tuple[str, ...], command: click.Command) -> str:
    shared = {name for option in (*cluster_options(), *output_options()) for name in option.opts}
    own = [parameter for parameter in command.params if not shared & set(parameter.opts)]
    cluster = any("--context" in parameter.opts for parameter in command.params)
    arguments = [parameter for parameter in own if isinstance(parameter, click.Argument)]
    usage = " ".join(["orbitmq", *path, *(parameter.make_metavar(_context(command)) for parameter in arguments)])
    help_text = "\n".join(line.strip() for line in (command.help or "").splitlines())
    blocks = [
        f"{'#' * min(4, 1 + len(path))} {' '.join(path)}\n",
        f"`{usage}`{' *cluster*' if cluster else ''}\n",
        f"{help_text}\n",
    ]
    if own:
        blocks.append(_options(own))
    return "\n".join(blocks)


def _options(parameters: list[Any]) -> str:
    lines = ["| | |", "| --- | --- |"]
    for parameter in parameters:
        if isinstance(parameter, click.Argument):
            name = f"`{parameter.make_metavar(_context(None)).strip('[]').replace(']...', '...')}`"
        else:
            name = ", ".join(f"`{word}`" for word in (*parameter.opts, *parameter.secondary_opts))
        lines.append(f"| {name} | {_escaped(parameter.help or '')}{_default(parameter)} |")
    return "\n".join(lines) + "\n"


def _default(parameter: Any) -> str:
    if isinstance(parameter, click.Argument) or parameter.is_flag or parameter.default in (None, False, True, "", ()):
        return ""
    value = getattr(parameter.default, "value", parameter.default)
    return f" Default `{value}`." if isinstance(value, str | int | float) else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _context(command: click.Command | None) -> click.Context:
    return click.Context(command or click.Command("orbitmq"))


def _aliases() -> str:
    lines = [
        "## RocketMQ's names of commands",
        "",
        "They take RocketMQ's options and print what ours prints: `orbitmq topicRoute -n HOST:PORT -t TOPIC`. An option that has no",
        "counterpart is an error that names our command. `--json` works with all of them.",
        "",
        "| mqadmin | ours | options | |",
        "| --- | --- | --- | --- |",
    ]
    for name, alias in sorted(ALIASES.items()):
        letters = " ".join(f"`-{names.partition(',')[0]}`" for names in alias.options)
        lines.append(f"| `{name}` | `{' '.join(alias.command)}` | {letters} | {_escaped(alias.note)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_compare({TARGET: render()}, sys.argv[1:], __file__))
