"""What the benchmarks of groups and deployments say of their figures: percentiles, rounds that are kept, what is judged and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rig.toolchain import REPOSITORY

if TYPE_CHECKING:
    from results import Results


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of benchmarks/ can be imported."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))


@pytest.fixture
def results(tmp_path: Path, programs: None) -> Results:
    from results import Results

    return Results(tmp_path / "kept" / "figures.json")


def test_a_percentile_is_one_of_the_values() -> None:
    from groups_measure import percentile

    values = [float(value) for value in range(1, 51)]
    assert [percentile(values, of_hundred) for of_hundred in (50, 98, 99, 100)] == [25, 49, 50, 50]
    assert percentile([7.0], 99) == 7
    with pytest.raises(ValueError, match="no percentile"):
        percentile([], 50)


def test_a_delay_counts_as_often_as_it_had_messages() -> None:
    from groups_measure import weighted_percentile

    assert weighted_percentile([(9_000, 1), (100, 99)], 99) == 100
    assert weighted_percentile([(9_000, 2), (100, 98)], 99) == 9_000


def test_a_row_goes_on_where_the_file_ends_and_is_forgotten_alone(results: Results, tmp_path: Path) -> None:
    from results import Results

    results.add("killed", {"away_s": 1.0, "late_ms": [3.0, 4.0]}, load=2.0)
    results.add("killed", {"away_s": 3.0}, load=0.5)
    results.add("frozen", {"away_s": 5.0}, load=1.0)
    again = Results(tmp_path / "kept" / "figures.json")
    assert again.count("killed") == 2
    assert again.values("killed", "late_ms") == [3.0, 4.0]
    assert again.median("killed", "away_s") == 2.0
    assert again.median("killed", "nothing") is None
    assert again.load(["killed", "frozen"]) == "0.5-2.0"
    again.forget(["killed"])
    assert list(json.loads((tmp_path / "kept" / "figures.json").read_text())) == ["frozen"]


def cost(of_leader: float) -> dict[str, float]:
    found = {}
    for load in ("4x32", "16x1"):
        found |= {f"group_{load}_us": of_leader, f"single_{load}_us": 100.0, f"follower_{load}_us": 50.0}
        found |= {f"group_{load}_p99_ms": 30.0, f"single_{load}_p99_ms": 10.0}
    return found


def test_the_median_of_the_ratios_of_the_rounds_is_judged(results: Results) -> None:
    from groups import cost_lines

    for of_leader in (120.0, 139.0, 200.0):
        results.add("flushed", cost(of_leader), 1.0)
    by_work = {line.work.partition(": ")[2]: line for line in cost_lines(results, "flushed")[:3]}
    assert by_work["the leader, CPU"].ratio == "1.39, best 1.20"
    assert by_work["the leader, CPU"].to_reach == "1.4x ✓"
    assert by_work["a follower, CPU"].to_reach == "-"
    assert by_work["a send, p99"].to_reach == "2.5x ✗"
    assert cost_lines(results, "memory") == []


def test_a_killed_leader_is_judged_by_its_time_and_beside_rocketmq(results: Results) -> None:
    from groups import killed_lines

    for _ in range(49):
        results.add("killed", {"away_s": 1.2}, 1.0)
    results.add("killed", {"away_s": 2.9}, 1.0)
    assert [line.to_reach for line in killed_lines(results)] == ["1.5 s, 0.3x ✓", "3 s, 0.3x ✓"]
    results.add("java-killed", {"away_s": 9.0}, 1.0)
    median, worst = killed_lines(results)
    assert (median.ratio, median.to_reach) == ("0.13", "1.5 s, 0.3x ✓")
    assert (worst.ours, worst.ratio, worst.to_reach) == ("2.90 s", "0.32", "3 s, 0.3x ✗")


def test_the_worst_round_of_the_other_faults_is_judged(results: Results) -> None:
    from groups import away_lines

    results.add("frozen", {"away_s": 6.0}, 1.0)
    results.add("switched", {"away_s": 0.2}, 1.0)
    results.add("switched", {"away_s": 0.6}, 1.0)
    frozen, switched = away_lines(results)
    assert (frozen.ours, frozen.other, frozen.to_reach) == ("6.00 s, 6.00 s", "-", "8 s ✓")
    assert (switched.ours, switched.to_reach) == ("0.40 s, 0.60 s", "0.5 s ✗")


def test_what_was_not_measured_is_in_no_table(results: Results) -> None:
    from groups import table

    results.add("beyond", {"single_mb": 32.0, "member_mb": 34.5, "single_cpu": 0.1, "member_cpu": 0.8}, 1.5)
    lines = table(results).splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 4, "two of the head, two of figures"
    assert lines[2].endswith("| 34.50 MB | 32.00 MB | +2.50 MB | +20 MB ✓ | 1.5-1.5 |")


def test_a_life_has_its_line_among_the_deployments_and_its_throughput_beside_one_master(results: Results) -> None:
    from deployments import table

    lived = {"accepted": 1_000, "lost": 0, "lost_others": 0, "undelivered": 0, "no_writes_s": 1.0, "no_reads_s": 0.25}
    results.add("group of 3, process killed", {**lived, "rate": 500.0}, 3.0)
    results.add("group of 3, machine without power", {**lived, "lost": 2, "undelivered": 1, "rate": 0.0}, 3.0)
    results.add("one master, process killed", {**lived, "rate": 1_000.0}, 3.0)
    assert table(results).splitlines()[2:] == [
        "| one master | process killed | 1,000 | 0 | 1.0 s | 0.2 s | 1.00 | 3.0 |",
        "| group of 3 | process killed | 1,000 | 0 | 1.0 s | 0.2 s | 0.50 | 3.0 |",
        "| group of 3 | machine without power | 1,000 | 2; 1 not delivered | 1.0 s | 0.2 s | 0.50 | 3.0 |",
    ]
