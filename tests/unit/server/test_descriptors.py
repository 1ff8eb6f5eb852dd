"""The budget of file descriptors."""

from __future__ import annotations

import resource

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import DESCRIPTORS_MAX, FILES_MIN, OPEN_FILES_MAX
from orbitmq.server.connections.descriptors import (
    DESCRIPTORS_MIN,
    MAPPINGS_USUAL,
    OTHER_MAPPINGS,
    OTHERS,
    ConnectionRoom,
    check_descriptors,
    descriptor_limit,
    file_room,
    files_share,
    mapping_limit,
    raise_descriptor_limit,
)


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "expected"),
    [
        (256, 4_096, True, 4_096),
        (4_096, 4_096, True, 4_096),
        (1_024, resource.RLIM_INFINITY, True, DESCRIPTORS_MAX),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, True, DESCRIPTORS_MAX),
        (1_024, resource.RLIM_INFINITY, False, 1_024),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: bool, expected: int
) -> None:
    wanted: list[tuple[int, int]] = []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        if not allowed:
            raise ValueError("not allowed to raise maximum limit")
        wanted.append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert raise_descriptor_limit() == expected
    assert all(limits == (expected, hard) for limits in wanted)


def test_connections_leave_descriptors_for_files() -> None:
    assert ConnectionRoom(256).open_max == 256 - FILES_MIN
    assert ConnectionRoom(20_000).open_max == 15_000
    assert ConnectionRoom(10).open_max == 1


def test_a_server_with_room_for_nobody_does_not_start() -> None:
    check_descriptors(DESCRIPTORS_MIN)
    assert ConnectionRoom(DESCRIPTORS_MIN).open_max == 64
    with pytest.raises(ConfigurationError, match="may open 128 files and sockets; a server needs 192"):
        check_descriptors(128)


@pytest.mark.parametrize("descriptors", [1, 64, 128, 300, 1_024, 3_000, 4_096, 20_000, DESCRIPTORS_MAX])
def test_files_and_connections_fit_together(descriptors: int) -> None:
    room = file_room(descriptors)
    assert room.open_max >= 1
    assert room.mapped_max >= 1
    used = room.open_max + room.mapped_max + OTHERS
    assert used <= files_share(descriptors)
    if descriptors > FILES_MIN:
        assert used + ConnectionRoom(descriptors).open_max <= descriptors


def test_mappings_stay_below_what_the_system_allows() -> None:
    assert file_room(DESCRIPTORS_MAX).mapped_max + OTHER_MAPPINGS < MAPPINGS_USUAL
    assert file_room(DESCRIPTORS_MAX, 5_000) == (OPEN_FILES_MAX - 904, 904)
    assert file_room(DESCRIPTORS_MAX, 100).mapped_max == 1
    assert mapping_limit() >= 1_000


def test_room_is_taken_and_given_back() -> None:
    room = ConnectionRoom(FILES_MIN + 2)
    assert [room.take() for _ in range(3)] == [True, True, False]
    room.give_back()
    assert room.take()


def test_the_limit_of_a_server_inside_another_program_is_what_that_has() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < descriptor_limit() <= DESCRIPTORS_MAX
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
