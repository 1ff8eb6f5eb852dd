"""RocketMQ's commands: each line means one of ours, and ours understands it."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
from scripted_server import Ran

from orbitmq.cli.main import root
from orbitmq.cli.mqadmin_aliases import ALIASES, ARGUMENT, BOOL, FLAG, REFUSED, REWRITTEN, Alias, translate

Run = Callable[..., Ran]


def command_of(words: tuple[str, ...]) -> click.Command:
    """The command of ours that the words name; options among them are left out."""
    command: click.Command = root()
    for word in words:
        if word.startswith("-") or word.isdigit():
            continue
        assert isinstance(command, click.Group), words
        below = command.get_command(click.Context(command), word)
        assert below is not None, words
        command = below
    return command


def options_of(alias: Alias) -> set[str]:
    """Names of our options that an alias uses."""
    used = {word for word in alias.command if word.startswith("-")}
    for ours in alias.options.values():
        if ours in ("", ARGUMENT, REFUSED, REWRITTEN):
            continue
        used.update(ours.removeprefix(BOOL).removeprefix(FLAG).split(","))
    return used


def unknown(alias: Alias) -> set[str]:
    command = command_of(alias.command)
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return options_of(alias) - known


@pytest.mark.parametrize("name", ALIASES)
def test_every_alias_is_a_command_of_ours_with_its_options(name: str) -> None:
    alias = ALIASES[name]
    assert unknown(alias) == set()
    arguments = [parameter for parameter in command_of(alias.command).params if isinstance(parameter, click.Argument)]
    given = sum(ours == ARGUMENT for ours in alias.options.values())
    assert given <= len(arguments) or any(argument.nargs == -1 for argument in arguments)


def test_an_option_that_ours_does_not_have_is_noticed() -> None:
    assert unknown(Alias(("topic", "route"), {"t,topic": ARGUMENT, "z,zone": "--zone"})) == {"--zone"}


@pytest.mark.parametrize("name", ALIASES)
def test_every_alias_shows_our_help(orbitmq: Run, name: str) -> None:
    ran = orbitmq(name, "-h")
    assert ran.code == 0
    words = " ".join(word for word in ALIASES[name].command if not word.startswith("-") and not word.isdigit())
    assert ran.out.startswith(f"Usage: orbitmq {words} ")


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("topicRoute -n h:1 -t T", "topic route --name-server h:1 -- T"),
        ("topicRoute -nh:1 -tT", "topic route --name-server h:1 -- T"),
        ("topicRoute --namesrvAddr=h:1 --topic T -l", "topic route --name-server h:1 -- T"),
        ("updateTopic -c C -t T -r 4 -w 2 -p 6 -o true", "topic create --cluster C --queues 4 --write-queues 2 --perm 6 --ordered -- T"),
        ("updateTopic -b h:2 -t T -o false", "topic create --broker h:2 -- T"),
        ("updateSubGroup -c C -g G -s false -d true -r 3", "group create --cluster C --no-consume --broadcast --retry-max-times 3 -- G"),
        ("createUser -c C -u alice -t Super", "access user create --cluster C --super -- alice"),
        ("createUser -b h:2 -u alice -t Normal", "access user create --broker h:2 -- alice"),
        ("updateUser -b h:2 -u alice -t Normal -s disable", "access user update --broker h:2 --disable --normal -- alice"),
        ("deleteUser -c C -u alice", "access user delete --yes --cluster C -- alice"),
        ("listUser -c C -f al", "access user list --cluster C --filter al"),
        (
            "createAcl -c C -s User:alice -r Topic:a,Group:* -a Pub,Sub -i 10.0.0.0/8 -d Allow",
            "access policy set --cluster C --actions Pub,Sub --from 10.0.0.0/8 --allow alice Topic:a Group:*",
        ),
        ("updateAcl -c C -s User:alice -r * -a All -d Deny", "access policy set --cluster C --actions All --deny alice *"),
        ("deleteAcl -c C -s User:alice", "access policy delete --yes --cluster C -- alice"),
        ("deleteAcl -c C -s User:alice -r Topic:a", "access policy delete --yes --cluster C -- alice Topic:a"),
        ("getAcl -c C -s User:alice", "access policy show --cluster C -- alice"),
        ("listAcl -c C -s alice -r Topic", "access policy list --cluster C --user alice --resource Topic"),
        ("consumerProgress", "group lag"),
        ("consumerProgress -g G -t T", "group lag --topic T -- G"),
        ("resetOffsetByTime -g G -t T -s now", "group reset --topic T --latest --yes -- G"),
        ("resetOffsetByTime -g G -t T -s -1", "group reset --topic T --latest --yes -- G"),
        ("resetOffsetByTime -g G -t T -s 1700000000000", "group reset --topic T --to-time 1700000000000 --yes -- G"),
        ("resetOffsetByTime -g G -t T -s 2024-05-01#12:30:00:250", "group reset --topic T --to-time 2024-05-01T12:30:00.250 --yes -- G"),
        ("resetOffsetByTime -g G -t T -b b -q 1 -o 7", "group reset --topic T --broker b --queue 1 --to-offset 7 --yes -- G"),
        ("printMsg -t T -s A", "tail --stop-at-end --tags A --from-beginning -- T"),
        ("printMsgByQueue -t T -a b -i 3 -b 1700000000000", "tail --stop-at-end --broker b --queue 3 --since 1700000000000 -- T"),
        ("printMsg -t T -b 2024-05-01#12:30:00", "tail --stop-at-end --since 2024-05-01T12:30:00 -- T"),
        ("queryMsgByOffset -t T -b b -i 0 -o 5", "message show --count 1 --broker b --queue 0 --offset 5 -- T"),
        ("sendMessage -t T -p -text -k K -c A", "message send --key K --tag A -- T -text"),
        ("updateBrokerConfig -b b -k key -v a=b", "broker config set -- b key=a=b"),
        ("updateKvConfig -v V -k K -s S", "nameserver kv put -- S K V"),
        ("clusterList -m", "cluster show"),
        ("topicList --json", "topic list --all --json"),
    ],
)  # fmt: skip
def test_lines_in_both_tongues(line: str, ours: str) -> None:
    name, *arguments = line.split(" ")
    assert sorted(translate(name, arguments)[:-1]) == sorted(ours.split(" ")[:-1])
    assert translate(name, arguments)[-1] == ours.split(" ")[-1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("topicRoute -x 1", "it takes -t, -l, -n, -h"),
        ("topicRoute T", "does not understand 'T'"),
        ("topicRoute -t", "needs a value"),
        ("brokerStatus -c C", "no counterpart"),
    ],
)
def test_what_cannot_be_translated_names_our_command(orbitmq: Run, line: str, says: str) -> None:
    name, *arguments = line.split(" ")
    ran = orbitmq(name, *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "orbitmq " + " ".join(ALIASES[name].command) in ran.err


def test_they_are_listed_apart(orbitmq: Run) -> None:
    assert "topicRoute" not in orbitmq("--help").out
    rows = json.loads(orbitmq("mqadmin", "--list", "--json").out)
    assert [row["mqadmin"] for row in rows] == sorted(ALIASES)


def test_they_may_be_called_by_their_programs_name(orbitmq: Run) -> None:
    named = orbitmq("mqadmin", "topicRoute", "-h")
    assert (named.code, named.out) == (0, orbitmq("topicRoute", "-h").out)
    assert orbitmq("mqadmin", "noSuchCommand").code == 2


def test_a_password_among_the_arguments_is_refused_and_not_repeated(orbitmq: Run) -> None:
    for command in ("createUser", "updateUser"):
        ran = orbitmq(command, "-c", "C", "-u", "alice", "-p", "s3cr3t", "-n", "127.0.0.1:1")
        assert ran.code == 2
        assert "s3cr3t" not in ran.out + ran.err
