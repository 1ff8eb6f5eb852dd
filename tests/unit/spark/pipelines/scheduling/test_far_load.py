"""Which broker takes the far rows of a job, whoever runs it, and what a machine must see to write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.errors import ClientError, MessageIllegalError
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeView
from orbitmq.spark.pipelines.scheduling.far_load import FarLoad, JobBroker, chosen
from orbitmq.spark.pipelines.scheduling.far_rows import _queues, storage_problem
from orbitmq.spark.writing.sending import WritableTopic


class Brokers:
    """What brokers of one topic know of scopes."""

    def __init__(self, **queue_counts: int) -> None:
        self.queue_counts = queue_counts
        self.scopes: dict[str, set[str]] = {}
        self.foreign = False

    def known(self, topic: str, prefix: str) -> WritableTopic:
        if self.foreign:
            return WritableTopic(self.queue_counts, None)
        names = {scope for broker in self.queue_counts for scope in self.scopes.get(broker, ())}
        return WritableTopic(
            self.queue_counts, [ScopeView(scope, 0, -1) for scope in sorted(names) if scope.startswith(prefix)]
        )

    def end_epoch(self, topic: str, broker: str, end: FinishEpoch, *, needed: bool) -> None:
        assert needed
        self.scopes.setdefault(broker, set()).add(end.scope)


def owner(brokers: Brokers, job: str = "job") -> JobBroker | str:
    unused: Any = None
    load = FarLoad(spark=unused, job=job, brief=False, options=unused, sending=brokers, run=unused)  # type: ignore[arg-type]
    return load._owner(["orders"])


def test_every_run_goes_to_the_same_broker_whatever_becomes_of_the_route() -> None:
    brokers = Brokers(a=4, b=2)
    first = owner(brokers)
    assert isinstance(first, JobBroker)
    assert first.queues == {"orders": brokers.queue_counts[first.name]}
    for added in "cdefgh":
        brokers.queue_counts[added] = 1
        assert owner(brokers) == first
    del brokers.queue_counts[first.name]
    with pytest.raises(ClientError, match=f"broker {first.name} has the far rows of job job, and is in no route"):
        owner(brokers)


def test_two_first_runs_with_different_brokers_are_noticed() -> None:
    brokers = Brokers(a=1)
    owner(brokers)
    other = Brokers(b=1)
    owner(other)
    brokers.queue_counts["b"] = 1
    brokers.scopes["b"] = other.scopes["b"]
    with pytest.raises(ClientError, match="two runs of job job began at once with different brokers: a, b"):
        owner(brokers)


def test_brokers_of_others_take_no_files() -> None:
    brokers = Brokers(a=1)
    brokers.foreign = True
    assert "RocketMQ's" in str(owner(brokers))


def test_jobs_spread_over_brokers_and_one_more_takes_few_from_the_others() -> None:
    jobs = [f"job-{number}" for number in range(300)]
    before = [chosen(job, {"a", "b", "c"}) for job in jobs]
    assert all(before.count(name) > 60 for name in "abc")
    moved = [
        name for job, name in zip(jobs, before, strict=True) if chosen(job, {"a", "b", "c", "d"}) not in (name, "d")
    ]
    assert moved == []
    assert chosen("job", set()) is None


def test_a_machine_has_to_see_what_the_broker_wrote(tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("text")
    assert storage_problem(str(tmp_path), "probe", "text") == ""
    assert "another text" in storage_problem(str(tmp_path), "probe", "other")
    assert "is not there" in storage_problem(str(tmp_path / "elsewhere"), "probe", "text")
    assert "cannot be used" in storage_problem("no-such://place", "probe", "text")


def test_the_queue_of_a_row() -> None:
    topics = pa.array(["wide", "narrow", "wide", "wide"])
    counts = {"wide": 4, "narrow": 1}
    assert _queues(None, None, topics, counts, 4).to_pylist() == [0, 0, 2, 3]
    keys = pa.array(["k", None, "k", ""])
    hashed = abs(java_hash("k")) % 4
    assert _queues(None, keys, topics, counts, 4).to_pylist() == [hashed, 0, hashed, 3]
    assert _queues(pa.array([3, None, None, 1]), keys, topics, counts, 4).to_pylist() == [3, 0, hashed, 1]
    with pytest.raises(MessageIllegalError, match="queue 1 of topic 'narrow', which has 1"):
        _queues(pa.array([0, 1, 0, 0]), None, topics, counts, 4)
