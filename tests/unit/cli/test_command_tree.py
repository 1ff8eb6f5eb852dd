"""All commands at once: each has help, JSON and the shared options; the list needs none of their modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from scripted_server import Ran

from orbitmq.cli.asking.shared_options import ClusterCommand, OutputCommand
from orbitmq.cli.lazy_group import LazyGroup
from orbitmq.cli.main import COMMANDS, root

Run = Callable[..., Ran]

WITHOUT_RESULT = {"serve", "broker", "nameserver", "completion"}
"""Commands that run a server or print a script."""


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below, with their words."""
    if path:
        yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from walk(below, (*path, name))


ALL = dict(walk(root()))
LEAVES = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help(orbitmq: Run, path: tuple[str, ...]) -> None:
    ran = orbitmq(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: orbitmq {' '.join(path)} ")
    assert ALL[path].help
    assert ran.out.count("rguments:\n") <= 1


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_result_can_be_had_as_json(path: tuple[str, ...]) -> None:
    assert isinstance(LEAVES[path], OutputCommand) or path[0] in WITHOUT_RESULT


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_and_argument_says_what_it_is_for(path: tuple[str, ...]) -> None:
    silent = [parameter.name for parameter in ALL[path].params if not getattr(parameter, "help", None)]
    assert silent == []


def test_letters_mean_the_same_everywhere() -> None:
    meant = {
        "-n": "--name-server", "-o": "--output", "-b": "--broker", "-y": "--yes", "-t": "--topic", "-p": "--property",
        "-k": "--key", "-h": "--help",
    }  # fmt: skip
    for path, command in LEAVES.items():
        for parameter in command.params:
            for letter, name in meant.items():
                if letter in parameter.opts:
                    assert name in parameter.opts, path


def test_the_list_says_what_the_commands_say() -> None:
    tree = root()
    ctx = click.Context(tree)
    for name, entry in COMMANDS.items():
        command = tree.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group) and not command.invoke_without_command:
            assert command.help == entry.help, name
        else:
            assert command.help, name


def test_a_list_that_differs_is_noticed() -> None:
    """The comparison above reads the command's own words, not the table's."""
    tree = root()
    assert isinstance(tree, LazyGroup)
    entries = {**COMMANDS, "topic": COMMANDS["topic"]._replace(help="Something else.")}
    planted = LazyGroup(entries, name="orbitmq")
    command = planted.get_command(click.Context(planted), "topic")
    assert command is not None
    assert command.help != entries["topic"].help


def modules_after(*words: str) -> set[str]:
    code = (
        f"import sys; sys.argv = {['orbitmq', *words]!r}\n"
        "from orbitmq.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('LOADED ' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_the_list_of_commands_imports_none_of_them() -> None:
    loaded = modules_after("--help")
    options = {"asking", "asking.shared_options", "asking.completing", "shared", "shared.chosen", "shared.exit_codes"}
    wanted = {"main", "lazy_group", *options}
    assert {name for name in loaded if name.startswith("orbitmq.cli.")} == {f"orbitmq.cli.{name}" for name in wanted}
    assert not {"rich", "asyncio", "msgspec", "uvloop", "orbitmq.server", "orbitmq.protocol"} & loaded
    assert not [name for name in loaded if name.startswith("orbitmq.client.")], "the package alone is a list of names"


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_of_a_command_imports_no_server_and_no_loop(path: tuple[str, ...]) -> None:
    """In this process the modules are loaded already; what a module imports at its top is in its names."""
    callback = LEAVES[path].callback
    assert callback is not None
    module = sys.modules[getattr(callback, "__wrapped__", callback).__module__]
    imported = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in vars(module).values()}
    heavy = ("orbitmq.server", "orbitmq.broker", "orbitmq.store", "orbitmq.client", "asyncio", "rich")
    assert [name for name in imported if isinstance(name, str) and name.startswith(heavy)] == []


def test_cluster_commands_share_their_options() -> None:
    sharing = [command for command in LEAVES.values() if isinstance(command, ClusterCommand)]
    assert len(sharing) > 30
    for command in sharing:
        names = {name for parameter in command.params for name in parameter.opts}
        assert {"--name-server", "--namesrv", "-n", "--context", "--timeout-ms", "--output", "--json"} <= names


def test_an_unknown_command_names_the_nearest(orbitmq: Run) -> None:
    ran = orbitmq("topc", "list")
    assert ran.code == 2
    assert "Did you mean 'topic'?" in ran.err
    assert "Did you mean 'clusterList'?" in orbitmq("clusterlist").err
    assert orbitmq("topic", "shwo").err.count("Did you mean 'show'?") == 1
    assert orbitmq("broker", "config", "sett").err.count("Did you mean") == 1


def test_json_wins_over_the_environment(orbitmq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_OUTPUT", "table")
    assert json.loads(orbitmq("version", "--json").out)
    monkeypatch.setenv("ORBITMQ_OUTPUT", "json")
    assert json.loads(orbitmq("version").out)
    assert "innermost loops" not in orbitmq("version", "-o", "table").out


@pytest.mark.parametrize("command", ["broker", "nameserver"])
def test_options_of_a_server_are_refused_for_a_command_to_one_that_runs(orbitmq: Run, command: str) -> None:
    ran = orbitmq(command, "--host", "0.0.0.0", "config", "get", "x")
    assert ran.code == 2
    assert "--host" in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_calls_us(orbitmq: Run, shell: str) -> None:
    ran = orbitmq("completion", shell)
    assert ran.code == 0
    assert "_ORBITMQ_COMPLETE" in ran.out


def complete(words: str, *environment: tuple[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli.main"],
        env={
            **os.environ,
            **dict(environment),
            "_ORBITMQ_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert complete("orbitmq gro") == ["group"]
    assert complete("orbitmq group la") == ["lag"]
    assert "--fail-above" in complete("orbitmq group lag --fail")


def test_a_cluster_that_is_not_there_completes_nothing_and_says_nothing() -> None:
    assert complete("orbitmq topic show -n 127.0.0.1:1 a") == []
