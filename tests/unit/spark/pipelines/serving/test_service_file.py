"""Files of services: what they say, and everything that is wrong with them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SERVICE_PARTS_MAX
from orbitmq.spark.pipelines.serving.service_file import read_service_file

GOOD = """
[spark]
master = "local[2]"

[service]
state = "/var/lib/lake"
http = "0.0.0.0:9404"
stop-within = "30s"

[defaults]
name-server = "localhost:9876"

[[stream]]
name = "orders"
sink = "archive"
topic = ["orders", "payments"]
to = "/data/archive"
every = "10s"

[[stream]]
name = "copy"
sink = "topic"
topic = "orders"
to = "orders-copy"
options = { startingOffsets = "latest" }

[[stream]]
name = "typed"
sink = "table"
topic = "orders"
to = "/data/typed"
quarantine = "/data/typed-quarantine"
[stream.options]
payload = "json"
payloadSchema = "id bigint"

[[job]]
name = "nightly"
pipeline = "report"
archive = "/data/archive"
to = "/data/report"
since = "1d"
cron = "0 3 * * *"
zone = "Europe/Berlin"

[[job]]
name = "tidy"
pipeline = "compact"
archive = "/data/archive"
every = "6h"
"""

WRONG = """
[service]
http = "9404"

[defaults]
name-server = "localhost:9876"

[[stream]]
name = "orders"
sink = "archive"
topic = ["orders"]
too = "/data/archive"
every = "10 parsecs"

[[stream]]
name = "orders"
sink = "queue"

[[job]]
name = "loop"
pipeline = "compakt"
archive = "/data/archive"
cron = "99 * * * *"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lake.toml"
    path.write_text(text)
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    said = read_service_file(written(tmp_path, GOOD))
    assert (said.master, said.service.address, said.service.stop_within_ms) == ("local[2]", ("0.0.0.0", 9404), 30_000)
    assert [(part.name, part.does, part.is_stream) for part in said.parts] == [
        ("orders", "archive", True),
        ("copy", "topic", True),
        ("typed", "table", True),
        ("nightly", "report", False),
        ("tidy", "compact", False),
    ]
    orders, copy, typed = (part.settings(0) for part in said.parts[:3])
    assert (orders.topic, orders.every_ms, orders.name_server) == (("orders", "payments"), 10_000, "localhost:9876")
    assert copy.read["startingOffsets"] == "latest"
    assert typed.read["startingOffsets"] == "earliest"
    assert typed.read["payload"] == "json"


def test_times_that_count_from_now_are_those_of_each_run(tmp_path: Path) -> None:
    report = read_service_file(written(tmp_path, GOOD)).parts[3]
    assert report.settings(100 * 86_400_000).since_ms == 99 * 86_400_000


def test_every_mistake_is_told_with_its_line_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_service_file(written(tmp_path, WRONG))
    first, *told = str(caught.value).splitlines()
    assert first.endswith("lake.toml has 8 mistakes:")
    for line, words in (
        (2, "service: state is missing (Local directory"),
        (8, "stream 'orders': to is missing"),
        (12, "stream 'orders': there is no setting too (did you mean to?"),
        (13, "stream 'orders': every "),
        (16, "stream 'orders': there are two of this name"),
        (17, "stream 'orders': sink is 'queue' (sink is one of archive, topic, table)"),
        (21, "job 'loop': there is no pipeline 'compakt' (the pipelines are archive"),
        (23, "job 'loop': "),
    ):
        assert any(one.startswith(f"  line {line}, {words}") for one in told), (line, words, told)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('to = "orders-copy"', 'to = "orders"', "line 21, stream 'copy': topic 'orders' is read and written"),
        ('quarantine = "/data/typed-quarantine"', 'quarantine = "/data/typed"', "to and quarantine are one table"),
        ('payload = "json"\npayloadSchema = "id bigint"\n', "", "nothing says what bodies hold"),
        ('options = { startingOffsets = "latest" }', 'options = { startingOfsets = "latest" }', "no option 'startingofsets'"),
        ('to = "/data/typed"', 'to = "/data/archive/"', "'typed' and 'orders' would both write /data/archive"),
        ('every = "6h"', 'every = "6h"\ncron = "* * * * *"', "line 47, job 'tidy': exactly one of every and cron"),
        ('every = "6h"', "every = 6", "every is 6, not a text"),
        ('pipeline = "compact"', 'pipeline = "vacuum"\nolder-than = "1h"', "older-than is 1h; it has to be 1d to"),
        ('every = "10s"', 'every = "10s"\nfollow = true', "line 19, stream 'orders': follow has no use in a service"),
        ('http = "0.0.0.0:9404"', 'http = "0.0.0.0:94040"', "line 7, service: http is"),
        ('http = "0.0.0.0:9404"', 'lineage-url = "marquez:5000"', "line 7, service: lineage-url is"),
        ('http = "0.0.0.0:9404"', 'lineage-url = "http://"', "line 7, service: lineage-url is no URL of a server"),
        ('http = "0.0.0.0:9404"', 'lineage-url = "http://marquez:http"', "line 7, service: lineage-url is no URL"),
        ('http = "0.0.0.0:9404"', 'lineage-url = "http://[::1"', "line 7, service: lineage-url is no URL"),
        ('name-server = "localhost:9876"', 'name-server = "localhost:9876"\nfollow = true', "line 12, stream 'orders': follow has no"),
        ('name = "copy"', 'name = "a/copy"', "line 22, stream 2: its name is 'a/copy'"),
        ('name = "copy"\n', "", "stream 2: it has no name"),
        ('name-server = "localhost:9876"', 'name-server = "localhost:9876"\nrate = 3', "no stream and no job has the setting rate"),
        ("[[job]]", "[[jobs]]", "there is no part 'jobs'"),
        ("[spark]", "deep = " + "[" * 20_000 + "]" * 20_000 + "\n[spark]", "is no TOML"),
        ('master = "local[2]"', 'master = "local[2]"\nremote = "sc://spark"', "[spark] has a master and is remote"),
        ('http = "0.0.0.0:9404"', 'http = "0.0.0.0:' + "9" * 5_000 + '"', "service: http is"),
        ('http = "0.0.0.0:9404"', 'http = "http://localhost:9404"', "service: http is"),
        ('state = "/var/lib/lake"', 'state = "s3://lake/state"', "which is no directory of this machine"),
        ('state = "/var/lib/lake"', 'state = ""', "service: state is ''"),
        ('to = "/data/archive"', 'to = "/data/\\u0000"', "stream 'orders': to is '/data/\\x00'"),
        ('sink = "archive"', 'sink = ["archive"]', "stream 'orders': sink is ['archive']"),
        ('every = "10s"', 'every = "999999999999d"', "it has to be 100ms to 36600d"),
        ('every = "10s"', 'since = "99999999999999999999"', "it has to be 0 to 253402300799999"),
        ('topic = ["orders", "payments"]', 'topic-pattern = "(("', "'((' is no regular expression"),
        ('topic = ["orders", "payments"]', 'topic = "a b"', "option subscribe: "),
        ('topic = "orders"\nto = "orders-copy"', 'topic-pattern = "orders.*"\nto = "orders-copy"', "is read and written"),
        ('{ startingOffsets = "latest" }', '{ Subscribe = "orders-copy" }', "option Subscribe says what topic says"),
        ('payload = "json"', 'payload = "json"\npayloadMode = "failfast"', "would end the stream at the first body"),
        ('payloadSchema = "id bigint"\n', "", "nothing says which fields payloads have"),
        ('to = "/data/typed"', 'to = "file:///data/../data/archive"', "would both write /data/archive"),
        (
            'pipeline = "compact"\narchive = "/data/archive"',
            'pipeline = "changes"\ntable = "/t"\nto = "t"\ncheckpoint = "/data/typed"',
            "would both write /data/typed",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in GOOD
    with pytest.raises(ConfigurationError, match=r".*") as caught:
        read_service_file(written(tmp_path, GOOD.replace(before, after, 1)))
    text = str(caught.value)
    assert (said.partition(", ")[2] if said.startswith("line") else said) in text


def test_a_file_of_an_editor_that_marks_its_texts(tmp_path: Path) -> None:
    assert len(read_service_file(written(tmp_path, "\ufeff" + GOOD)).parts) == 5


def test_a_service_has_something_to_do_and_not_too_much(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no stream and no job"):
        read_service_file(written(tmp_path, '[service]\nstate = "/x"\n'))
    jobs = "".join(
        f'[[job]]\nname = "j{number}"\npipeline = "compact"\narchive = "/a"\nevery = "1h"\n'
        for number in range(SERVICE_PARTS_MAX + 1)
    )
    with pytest.raises(ConfigurationError, match=f"more than {SERVICE_PARTS_MAX}"):
        read_service_file(written(tmp_path, f'[service]\nstate = "/x"\n{jobs}'))
