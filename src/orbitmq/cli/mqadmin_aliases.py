"""RocketMQ's administration commands as other names of ours: `orbitmq topicRoute -n HOST:PORT -t TOPIC`.

Each row says which command of ours it is and what becomes of its options. The line is translated and our command runs; what is
printed is in our form.

Rules of this file
1. The table is data. An option is translated, refused with the name of our command, or listed as without meaning here.
2. A command of RocketMQ that has no counterpart here is not in the table, and is an unknown command like any other.
3. Options may be written as RocketMQ's parser takes them: `-t x`, `-tx`, `-t=x`, `--topic x`, `--topic=x`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from typer.core import TyperCommand

ARGUMENT: Final = "ARGUMENT"
"""An option's value becomes an argument of ours; several in the order of the table."""

FLAG: Final = "FLAG:"
"""An option without a value, or one whose value is `true`, becomes the flag named after this."""

DROPPED: Final = ""
"""An option without meaning here: its value is taken and ignored."""

REFUSED: Final = "REFUSED"
"""An option that ours cannot do: naming it is an error, because leaving it out would do something else."""

REWRITTEN: Final = "REWRITTEN"
"""An option that the row's `rewrite` turns into ours."""

BOOL: Final = "BOOL:"
"""An option with `true` or `false` becomes the first or the second of the flags named after this."""

_NAMESRV: Final = {"n,namesrvAddr": "--name-server"}
_HELP: Final = {"h,help": FLAG + "--help"}


class Alias(NamedTuple):
    """One command of RocketMQ.

    command: ours, with fixed options. options: RocketMQ's letter and long name -> ours. flags: letters that take no value. note: what
    is different, for the list. rewrite: turns the values of `REWRITTEN` letters into options or arguments of ours.
    """

    command: tuple[str, ...]
    options: Mapping[str, str]
    flags: frozenset[str] = frozenset()
    note: str = ""
    rewrite: Callable[[dict[str, str]], list[str]] | None = None


def _pairs(values: dict[str, str]) -> list[str]:
    """`-k key -v value` as KEY=VALUE."""
    return [f"{values.pop('k', '')}={values.pop('v', '')}"]


def _reset(values: dict[str, str]) -> list[str]:
    """`-s` is `now`, `-1` or an instant; `-o` an offset of one queue."""
    if "o" in values:
        values.pop("s", None)
        return ["--to-offset", values.pop("o"), "--yes"]
    text = values.pop("s", "now")
    if text in ("now", "-1"):
        return ["--latest", "--yes"]
    return ["--to-time", _instant(text), "--yes"]


def _since(values: dict[str, str]) -> list[str]:
    """`-b` is an instant; without it all messages are meant."""
    return ["--since", _instant(values.pop("b"))] if "b" in values else ["--from-beginning"]


def _instant(text: str) -> str:
    """Milliseconds stay; `2024-05-01#12:00:00:000` in local time becomes an instant as we write it."""
    day, hash_sign, time = text.partition("#")
    if not hash_sign:
        return text
    clock, _, milliseconds = time.rpartition(":")
    if clock.count(":") < 2:
        return f"{day}T{time}"
    return f"{day}T{clock}.{milliseconds:0>3}"


def _user_flags(values: dict[str, str]) -> list[str]:
    """`-t Super`, and `-s disable` of a user that exists."""
    flags = []
    if "t" in values:
        flags += ["--super"] if values["t"].lower() == "super" else []
    if "s" in values:
        flags += ["--disable" if values["s"].lower() == "disable" else "--enable"]
    return flags


def _changed_user(values: dict[str, str]) -> list[str]:
    return [*_user_flags(values), *(["--normal"] if values.get("t", "").lower() == "normal" else [])]


def _entries(values: dict[str, str]) -> list[str]:
    """`-s User:NAME -r RESOURCE,RESOURCE -d Allow` as options and arguments."""
    return ["--deny" if values.get("d", "").lower() == "deny" else "--allow", *_subject(values)]


def _subject(values: dict[str, str]) -> list[str]:
    """`-s User:NAME`, and `-r RESOURCE` where it is given, as arguments; without it a deletion is of everything."""
    return [values.get("s", "").removeprefix("User:"), *(values["r"].split(",") if "r" in values else [])]


_WHERE: Final = {"c,clusterName": "--cluster", "b,brokerAddr": "--broker"}
_SETS_ENTRIES: Final = Alias(
    ("access", "policy", "set"),
    {
        **_WHERE,
        "s,subject": REWRITTEN,
        "r,resources": REWRITTEN,
        "d,decision": REWRITTEN,
        "a,actions": "--actions",
        "i,sourceIp": "--from",
    },
    rewrite=_entries,
)
_NO_PASSWORD: Final = (
    "-p is refused: a password among the arguments stands in the history of the shell; it is asked for"
)

ALIASES: Final[dict[str, Alias]] = {
    "clusterList": Alias(
        ("cluster", "show"),
        {"c,clusterName": "--cluster", "m,moreStats": DROPPED, "i,interval": DROPPED},
        frozenset("m"),
        "the figures of -m are always there",
    ),
    "clusterRT": Alias(
        ("cluster", "check-rt"),
        {
            "c,cluster": "--cluster",
            "a,amount": "--count",
            "s,size": "--size",
            "p,print log": DROPPED,
            "m,machine room": DROPPED,
            "i,interval": DROPPED,
        },
    ),
    "checkMsgSendRT": Alias(("cluster", "check-rt"), {"t,topic": "--topic", "a,amount": "--count", "s,size": "--size"}),
    "statsAll": Alias(("cluster", "stats"), {"a,activeTopic": FLAG + "--active", "t,topic": "--topic"}, frozenset("a")),
    "topicList": Alias(("topic", "list", "--all"), {"c,clusterModel": DROPPED}, frozenset("c"), "-c adds nothing"),
    "topicRoute": Alias(("topic", "route"), {"t,topic": ARGUMENT, "l,list": DROPPED}, frozenset("l")),
    "topicClusterList": Alias(("topic", "route"), {"t,topic": ARGUMENT}),
    "topicStatus": Alias(("topic", "stats"), {"t,topic": ARGUMENT, "c,cluster": DROPPED}),
    "updateTopic": Alias(
        ("topic", "create"),
        {
            "t,topic": ARGUMENT,
            "r,readQueueNums": "--queues",
            "w,writeQueueNums": "--write-queues",
            "p,perm": "--perm",
            "o,order": FLAG + "--ordered",
            "a,attributes": "--attribute",
            "b,brokerAddr": "--broker",
            "c,clusterName": "--cluster",
            "u,unit": DROPPED,
            "s,hasUnitSub": DROPPED,
        },
        note="several attributes need an -a each",
    ),
    "updateTopicPerm": Alias(
        ("topic", "update"),
        {"t,topic": ARGUMENT, "p,perm": "--perm", "b,brokerAddr": "--broker", "c,clusterName": DROPPED},
    ),
    "deleteTopic": Alias(("topic", "delete", "--yes"), {"t,topic": ARGUMENT, "c,clusterName": "--cluster"}),
    "updateSubGroup": Alias(
        ("group", "create"),
        {
            "g,groupName": ARGUMENT,
            "s,consumeEnable": BOOL + "--consume,--no-consume",
            "d,consumeBroadcastEnable": BOOL + "--broadcast,--no-broadcast",
            "q,retryQueueNums": "--retry-queues",
            "r,retryMaxTimes": "--retry-max-times",
            "b,brokerAddr": "--broker",
            "c,clusterName": "--cluster",
        },
    ),
    "deleteSubGroup": Alias(
        ("group", "delete", "--yes"),
        {"g,groupName": ARGUMENT, "c,clusterName": "--cluster", "r,removeOffset": DROPPED},
        note="offsets go too",
    ),
    "consumerProgress": Alias(
        ("group", "lag"),
        {"g,groupName": ARGUMENT, "t,topicName": "--topic", "s,showClientIP": DROPPED, "c,cluster": DROPPED},
        note="owners are always shown",
    ),
    "getConsumerConfig": Alias(("group", "show"), {"g,groupName": ARGUMENT}),
    "consumerConnection": Alias(("group", "members"), {"g,consumerGroup": ARGUMENT, "b,brokerAddr": DROPPED}),
    "consumerStatus": Alias(
        ("group", "subscriptions"),
        {"g,consumerGroup": ARGUMENT, "s,jstack": DROPPED, "i,clientId": DROPPED, "b,brokerAddr": DROPPED},
        frozenset("s"),
    ),
    "producerConnection": Alias(("topic", "producers"), {"t,topic": ARGUMENT, "g,producerGroup": "--group"}),
    "resetOffsetByTime": Alias(
        ("group", "reset"),
        {
            "g,group": ARGUMENT,
            "t,topic": "--topic",
            "s,timestamp": REWRITTEN,
            "o,offset": REWRITTEN,
            "q,queue": "--queue",
            "b,broker": "--broker",
            "f,force": DROPPED,
            "c,cplus": DROPPED,
        },
        frozenset("c"),
        rewrite=_reset,
    ),
    "skipAccumulatedMessage": Alias(
        ("group", "reset", "--latest", "--yes"),
        {"g,group": ARGUMENT, "t,topic": "--topic", "f,force": DROPPED},
    ),
    "queryMsgById": Alias(
        ("message", "show"), {"i,msgId": "--id", "t,topic": DROPPED}, note="shows; sending to one client is not offered"
    ),
    "queryMsgByKey": Alias(
        ("message", "show"),
        {"t,topic": ARGUMENT, "k,msgKey": "--key", "m,maxNum": "--count"},
    ),
    "queryMsgByUniqueKey": Alias(
        ("message", "show"), {"t,topic": ARGUMENT, "i,msgId": "--unique-key", "a,showAll": DROPPED}, frozenset("a")
    ),
    "queryMsgByOffset": Alias(
        ("message", "show", "--count", "1"),
        {"t,topic": ARGUMENT, "i,queueId": "--queue", "o,offset": "--offset", "b,brokerName": "--broker"},
    ),
    "printMsg": Alias(
        ("tail", "--stop-at-end"),
        {
            "t,topic": ARGUMENT,
            "s,subExpression": "--tags",
            "b,beginTimestamp": REWRITTEN,
            "e,endTimestamp": REFUSED,
            "d,printBody": DROPPED,
            "c,charsetName": DROPPED,
        },
        rewrite=_since,
    ),
    "printMsgByQueue": Alias(
        ("tail", "--stop-at-end"),
        {
            "t,topic": ARGUMENT,
            "a,brokerName": "--broker",
            "i,queueId": "--queue",
            "s,subExpression": "--tags",
            "b,beginTimestamp": REWRITTEN,
            "e,endTimestamp": REFUSED,
            "p,printMsg": DROPPED,
            "d,printBody": DROPPED,
            "c,charsetName": DROPPED,
        },
        rewrite=_since,
    ),
    "sendMessage": Alias(
        ("message", "send"),
        {
            "t,topic": ARGUMENT,
            "p,body": ARGUMENT,
            "k,keys": "--key",
            "c,tags": "--tag",
            "b,broker": "--broker",
            "i,qid": "--queue",
            "m,msgTraceEnable": DROPPED,
        },
    ),
    "brokerStatus": Alias(("broker", "show"), {"b,brokerAddr": ARGUMENT, "c,clusterName": REFUSED}),
    "getBrokerConfig": Alias(
        ("broker", "config", "get"), {"b,brokerAddr": ARGUMENT, "k,key": ARGUMENT, "c,clusterName": REFUSED}
    ),
    "updateBrokerConfig": Alias(
        ("broker", "config", "set"),
        {
            "b,brokerAddr": ARGUMENT,
            "k,key": REWRITTEN,
            "v,value": REWRITTEN,
            "c,clusterName": REFUSED,
            "a,updateAllBroker": REFUSED,
        },
        rewrite=_pairs,
    ),
    "haStatus": Alias(
        ("replica", "status"), {"b,brokerAddr": ARGUMENT, "c,clusterName": "--cluster", "i,interval": REFUSED}
    ),
    "wipeWritePerm": Alias(("broker", "wipe-write", "--yes"), {"b,brokerName": ARGUMENT}),
    "addWritePerm": Alias(("broker", "add-write"), {"b,brokerName": ARGUMENT}),
    "updateKvConfig": Alias(
        ("nameserver", "kv", "put"), {"s,namespace": ARGUMENT, "k,key": ARGUMENT, "v,value": ARGUMENT}
    ),
    "deleteKvConfig": Alias(("nameserver", "kv", "delete"), {"s,namespace": ARGUMENT, "k,key": ARGUMENT}),
    "getNamesrvConfig": Alias(("nameserver", "config", "get"), {}),
    "createUser": Alias(
        ("access", "user", "create"),
        {**_WHERE, "u,username": ARGUMENT, "p,password": REFUSED, "t,userType": REWRITTEN},
        note=_NO_PASSWORD,
        rewrite=_user_flags,
    ),
    "updateUser": Alias(
        ("access", "user", "update"),
        {**_WHERE, "u,username": ARGUMENT, "p,password": REFUSED, "t,userType": REWRITTEN, "s,userStatus": REWRITTEN},
        note=_NO_PASSWORD,
        rewrite=_changed_user,
    ),
    "deleteUser": Alias(("access", "user", "delete", "--yes"), {**_WHERE, "u,username": ARGUMENT}),
    "getUser": Alias(("access", "user", "show"), {**_WHERE, "u,username": ARGUMENT}),
    "listUser": Alias(("access", "user", "list"), {**_WHERE, "f,filter": "--filter"}),
    "createAcl": _SETS_ENTRIES,
    "updateAcl": _SETS_ENTRIES,
    "deleteAcl": Alias(
        ("access", "policy", "delete", "--yes"),
        {**_WHERE, "s,subject": REWRITTEN, "r,resources": REWRITTEN},
        rewrite=_subject,
    ),
    "getAcl": Alias(("access", "policy", "show"), {**_WHERE, "s,subject": REWRITTEN}, rewrite=_subject),
    "listAcl": Alias(("access", "policy", "list"), {**_WHERE, "s,subject": "--user", "r,resource": "--resource"}),
    "updateNamesrvConfig": Alias(
        ("nameserver", "config", "set"), {"k,key": REWRITTEN, "v,value": REWRITTEN}, rewrite=_pairs
    ),
}
"""RocketMQ's name -> ours."""


def translate(name: str, arguments: Sequence[str]) -> list[str]:
    """Our command line for one of RocketMQ's. `click.UsageError` for an option that it cannot be translated with."""
    alias = ALIASES[name]
    known = {**alias.options, **_NAMESRV, **_HELP}
    letters = {names.partition(",")[0]: ours for names, ours in known.items()}
    long_names = {names.partition(",")[2]: names.partition(",")[0] for names in known}
    values: dict[str, str] = {}
    options: list[str] = []
    for letter, value in _parsed(name, arguments, letters, long_names, alias.flags | {"h"}):
        ours = FLAG + "--json" if letter == "json" else letters[letter]
        if ours == REFUSED:
            raise click.UsageError(
                f"{name} -{letter} has no counterpart; see: orbitmq {' '.join(alias.command)} --help"
            )
        if ours in (ARGUMENT, REWRITTEN):
            values[letter] = value
        elif ours.startswith(BOOL):
            yes, _, no = ours.removeprefix(BOOL).partition(",")
            options.append(yes if value.lower() == "true" else no)
        elif ours.startswith(FLAG):
            options += [ours.removeprefix(FLAG)] if value.lower() in ("", "true") else []
        elif ours:
            options += [ours, value]
    if alias.rewrite is not None and "--help" not in options:
        rewritten = alias.rewrite(values)
    else:
        rewritten = []
    given = [values[names[0]] for names, ours in alias.options.items() if ours == ARGUMENT and names[0] in values]
    # Our arguments come last and behind `--`: a body or a value may begin with a dash.
    dashed = rewritten if rewritten and rewritten[0].startswith("--") else []
    plain = [] if dashed else rewritten
    return [*alias.command, *options, *dashed, *(["--", *given, *plain] if given or plain else [])]


def _parsed(
    name: str,
    arguments: Sequence[str],
    letters: Mapping[str, str],
    long_names: Mapping[str, str],
    flags: frozenset[str],
) -> list[tuple[str, str]]:
    """Letters with their values in the order given."""
    ours = " ".join(ALIASES[name].command)
    found: list[tuple[str, str]] = []
    waiting = list(arguments)
    while waiting:
        text = waiting.pop(0)
        word, equals, value = text.lstrip("-").partition("=")
        if text == "--json":
            found.append(("json", ""))
            continue
        letter = long_names.get(word) or (word if word in letters else "")
        if not letter and text.startswith("-") and not text.startswith("--") and text[1:2] in letters:
            letter, equals, value = text[1], "=", text[2:]
        if not letter or not text.startswith("-"):
            known = ", ".join(f"-{letter}" for letter in letters)
            raise click.UsageError(
                f"{name} does not understand {text!r}; it takes {known}. Ours: orbitmq {ours} --help"
            )
        if letter in flags:
            found.append((letter, value))
        elif equals:
            found.append((letter, value.strip()))
        elif waiting:
            found.append((letter, waiting.pop(0).strip()))
        else:
            raise click.UsageError(f"{name} {text} needs a value. Ours: orbitmq {ours} --help")
    return found


class AliasCommand(TyperCommand):
    """One of RocketMQ's commands, run as ours."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            callback=lambda: None,
            help=f"RocketMQ's {name}; see: orbitmq {' '.join(ALIASES[name].command)} --help",
            hidden=True,
            add_help_option=False,
            rich_markup_mode=None,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        assert self.name is not None
        ctx.obj = translate(self.name, args)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        return run_line(ctx, ctx.obj)


def run_line(ctx: click.Context, line: list[str]) -> Any:
    """Run one of our command lines in place of the command that was called; what was chosen before it holds for it."""
    root = ctx.find_root()
    with root.command.make_context(root.info_name, line, parent=None) as again:
        again.meta.update(root.meta)
        return root.command.invoke(again)


def alias_command(name: str) -> click.Command:
    """The command of ours behind a name of RocketMQ's."""
    return AliasCommand(name)
