"""The options of a data source: how a table describes them, and reading what somebody gave.

Rules of this file
1. Pure: text in, values out. Nothing is looked up, so every mistake in an option is found before a server or a file is asked.
2. Names count in any letter case, as everywhere in Spark. An unknown one is an error that names the nearest known one and lists
   all.
3. Every mistake is a `ConfigurationError` that names the option, what is wrong with it, and how it would be right.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from orbitmq.client.addresses import parse_addresses
from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.nearest import nearest
from orbitmq.protocol.names import topic_name_problem

Default = TypeVar("Default", int, None)
NUMBER_MAX: Final = 2**63 - 1
SHOWN_CHARS: Final = 40


class ReadKind(Enum):
    """For which reads an option counts."""

    BOTH = "both"
    BATCH = "batch"
    STREAM = "stream"


class Option(NamedTuple):
    """What documentation and error messages say of an option."""

    name: str
    values: str
    default: str
    meaning: str
    reads: ReadKind = ReadKind.BOTH


KAFKA_SERVERS: Final = Option(
    "kafka.bootstrap.servers",
    "`host:port`, several separated by `,`",
    "",
    "The same for programs that were written for Kafka: the name servers, and columns named as Kafka's.",
)
"""Reads and writes know it, so that such programs need another format and other addresses."""


class GivenOptions:
    """What somebody gave. Numbers, words and flags that are an empty text count as not given."""

    def __init__(
        self, options: Mapping[str, str], known: Sequence[Option], purpose: str, *, others: Container[str] = ()
    ) -> None:
        """others: names in lower case that are passed over. Raises for the first name that is not known."""
        self._texts = {name.lower(): str(value).strip() for name, value in options.items() if value is not None}
        self._known = {option.name.lower(): option for option in known}
        for name in self._texts:
            if name not in self._known and name not in others:
                names = [option.name for option in known]
                near = nearest(name, names)
                meant = f"did you mean {near}? " if near else ""
                raise ConfigurationError(
                    f"there is no option {name!r} for {purpose}", remedy=f"{meant}the options are {', '.join(names)}"
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def get(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def check_reads(self, *, streaming: bool) -> None:
        """Raises for the first option that has no effect on this kind of read."""
        for name in self._texts:
            option = self._known[name]
            if option.reads is (ReadKind.BATCH if streaming else ReadKind.STREAM):
                kind, other = ("stream", "batch reads") if streaming else ("batch read", "streams")
                raise ConfigurationError(f"option {option.name} has no effect on a {kind}; it is for {other}")

    def among(self, *names: str) -> list[str]:
        """Those of these options that are given and not empty."""
        return [name for name in names if self.get(name)]

    def number(self, name: str, default: Default, low: int, high: int = NUMBER_MAX) -> int | Default:
        text = self.get(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX)) and low <= int(text) <= high):
            bounds = f"from {low} on" if high == NUMBER_MAX else f"from {low} to {high}"
            raise ConfigurationError(f"option {name}: {text[:SHOWN_CHARS]!r} is not a whole number {bounds}")
        return int(text)

    def choice(self, name: str, values: Sequence[str]) -> str:
        """One of `values`, of which the first is the default."""
        text = (self.get(name) or values[0]).lower()
        if text not in values:
            raise ConfigurationError(f"option {name}: {text[:SHOWN_CHARS]!r} is not one of {', '.join(values)}")
        return text

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false") if default else ("false", "true")) == "true"

    def properties_form(self) -> PropertiesForm | None:
        """None where the option is not given, and a type that the user's schema names says it."""
        if not self.get("includeProperties"):
            return None
        return PropertiesForm(self.choice("includeProperties", list(PropertiesForm)))

    def name_servers(self) -> tuple[str, ...]:
        kafka = self.get(KAFKA_SERVERS.name)
        text = self.get("nameServer") or (kafka or "").replace(",", ";")
        if kafka and self.get("nameServer"):
            raise ConfigurationError(
                f"nameServer and {KAFKA_SERVERS.name} are given together", remedy="give only one of them"
            )
        if not text:
            raise ConfigurationError(
                "option nameServer is missing", remedy='for example .option("nameServer", "localhost:9876")'
            )
        return parse_addresses(text)

    def topics(self, name: str) -> list[str]:
        """The name that the option `topic` gives, or the names of `subscribe`."""
        text = self.get(name) or ""
        topics = [text] if name == "topic" else [part.strip() for part in text.split(",") if part.strip()]
        for topic in topics:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise ConfigurationError(f"option {name}: {problem}")
        return topics

    def pattern(self, name: str) -> str:
        text = self.get(name) or ""
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            shown = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
            raise ConfigurationError(f"option {name}: {shown!r} is no regular expression: {error}") from error
        return text
