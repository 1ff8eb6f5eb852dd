"""What the demo shows while it runs, and what it says when a stage fails."""

from __future__ import annotations

import io

import pytest
from examples.order_timeout_spark.stages import StageError, Stages, why
from rich.console import Console


def stages_on(terminal: bool) -> tuple[Stages, io.StringIO]:
    shown = io.StringIO()
    return Stages(Console(file=shown, force_terminal=terminal, width=120)), shown


def test_where_nobody_watches_a_stage_is_a_plain_line() -> None:
    stages, shown = stages_on(terminal=False)
    with stages, stages.stage("orders", 2_000) as stage:
        stage.advance(1_500)
        stage.reach(2_000, "all of them")
    assert shown.getvalue().startswith("orders: 2,000 of 2,000, all of them, done after 0.0 s")
    assert "\x1b" not in shown.getvalue()
    assert set(stages.seconds) == {"orders"}


def test_on_a_terminal_every_stage_has_a_bar() -> None:
    stages, shown = stages_on(terminal=True)
    with stages:
        with stages.stage("one", 10) as stage:
            stage.advance(10)
        with stages.stage("two"):
            pass
    assert "one" in shown.getvalue()
    assert "two" in shown.getvalue()
    assert shown.getvalue().count("100%") >= 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_failure_names_its_innermost_stage_and_the_reason(terminal: bool) -> None:
    stages, _shown = stages_on(terminal)
    says = r"^the stage 'inner' failed after 0 s: ValueError: no such topic$"
    with pytest.raises(StageError, match=says), stages, stages.stage("outer"), stages.stage("inner", 5):
        raise ValueError("no such topic")


def test_an_interrupt_stays_one() -> None:
    stages, _shown = stages_on(terminal=False)
    with pytest.raises(KeyboardInterrupt), stages, stages.stage("orders"):
        raise KeyboardInterrupt


def test_of_an_error_of_spark_its_head_and_what_python_said_last_are_shown() -> None:
    problem = RuntimeError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it broke\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 10, in main\n'
        "    process()\n"
        "orbitmq.errors.BrokerAwayError: topic orders of 127.0.0.1:9: nobody answers\n"
        "\n"
        "\tat org.apache.spark.Something.run(Something.scala:1)\n"
        "Caused by: java.lang.Exception: never mind\n"
    )
    assert why(problem) == (
        "RuntimeError: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it broke\n"
        "  orbitmq.errors.BrokerAwayError: topic orders of 127.0.0.1:9: nobody answers"
    )
    assert why(ValueError()) == "ValueError: "
