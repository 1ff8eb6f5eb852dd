"""The end of spark-submit's Java, which is played: the hook that it gets, and that nobody waits for a Java that is gone or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq.spark.pipelines.run import StopRequest
from orbitmq.spark.pipelines.serving import java_shutdown
from orbitmq.spark.pipelines.serving.java_shutdown import stopped_with_java

LIMIT_S = 30


class Java:
    """What of Java is asked; `ending` answers whether it ends."""

    def __init__(self, ending: Callable[[], bool]) -> None:
        self.hooks: list[Any] = []
        manager = SimpleNamespace(
            addShutdownHook=lambda hook, *_: self.hooks.append(hook),
            isShutdownInProgress=ending,
            removeShutdownHook=self.hooks.remove,
        )
        milliseconds = SimpleNamespace(MILLISECONDS="ms")
        util = SimpleNamespace(ShutdownHookManager=SimpleNamespace(get=lambda: manager))
        jvm = SimpleNamespace(
            java=SimpleNamespace(
                lang=SimpleNamespace(Thread=lambda hook: hook),
                util=SimpleNamespace(concurrent=SimpleNamespace(TimeUnit=milliseconds)),
            ),
            org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(util=util))),
        )
        self.spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(jvm=jvm)))


@pytest.fixture(autouse=True)
def _submitted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda gateway: None)
    return


def test_the_end_of_java_requests_the_stop_and_waits_for_it() -> None:
    java, stop = Java(lambda: True), StopRequest()
    with stopped_with_java(java.spark, stop, LIMIT_S * 1000):
        ending = threading.Thread(target=java.hooks[0].run)
        ending.start()
        assert stop.wait(LIMIT_S * 1000)
        assert ending.is_alive(), "it waits for the end of the service"
    ending.join(LIMIT_S)
    assert not ending.is_alive()
    assert len(java.hooks) == 1, "a Java that ends takes no hook back"


def test_the_hook_goes_with_the_service() -> None:
    java = Java(lambda: False)
    with stopped_with_java(java.spark, StopRequest(), 1000):
        assert len(java.hooks) == 1
    assert java.hooks == []


def test_a_java_that_is_gone_changes_nothing_of_the_end() -> None:
    def gone() -> bool:
        raise ConnectionRefusedError("Java is gone")

    with stopped_with_java(Java(gone).spark, StopRequest(), 1000):
        pass


def test_a_java_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_shutdown, "SERVICE_SESSION_END_MS", 10)
    hung = threading.Event()
    began = time.monotonic()
    with stopped_with_java(Java(lambda: hung.wait(LIMIT_S)).spark, StopRequest(), 1000):
        pass
    assert time.monotonic() - began < LIMIT_S
    hung.set()
