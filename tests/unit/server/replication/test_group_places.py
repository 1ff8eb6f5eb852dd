"""Where the master is: what a command said counts until a name server names another place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.replication.kept_state import Demoted
from orbitmq.server.replication.group_places import GroupPlaces

OWN, SAID = "10.0.0.1:10911", Demoted(2, "10.0.0.2:10911", "10.0.0.2:10912")


def told(named: str, named_port: str) -> GroupPlaces:
    identity = SimpleNamespace(address=OWN)
    registrar = SimpleNamespace(
        identity=identity, master_address=named, master_ha_address=named_port, register_all=lambda: None
    )
    places = GroupPlaces(cast(Any, registrar), ())
    places.follow(SAID)
    return places


@pytest.mark.parametrize(
    ("named", "named_port", "main_port", "port_for_slaves"),
    [
        ("", "", SAID.master, SAID.port),
        (OWN, "10.0.0.1:10912", SAID.master, SAID.port),  # of before the exchange
        ("10.0.0.3:10911", "10.0.0.3:10912", "10.0.0.3:10911", "10.0.0.3:10912"),
        ("10.0.0.2:20911", SAID.port, "10.0.0.2:20911", SAID.port),  # it began again, with another main port
    ],
)
def test_the_master_of_a_command_is_followed_until_a_name_server_names_another_place(
    named: str, named_port: str, main_port: str, port_for_slaves: str
) -> None:
    places = told(named, named_port)
    assert places.master_port() == port_for_slaves
    assert places.main_port(places.master_port()) == main_port


def test_a_name_server_is_asked_for_the_main_port_of_a_master_whose_port_for_slaves_is_set() -> None:
    """It was not there when this slave registered, and has a main port that the other one does not tell."""
    registrar = SimpleNamespace(identity=SimpleNamespace(address=OWN), master_address="", master_ha_address="")
    registrar.register_all = lambda: setattr(registrar, "master_address", "10.0.0.2:20911")
    places = GroupPlaces(cast(Any, registrar), ("10.0.0.2:10912",))
    assert places.main_port(places.master_port()) == "10.0.0.2:20911"


GIVEN, NAMED = "10.0.0.2:10912", "10.0.0.3:10912"


def given(named: str, named_port: str) -> GroupPlaces:
    registrar = SimpleNamespace(
        identity=SimpleNamespace(address=OWN),
        master_address=named,
        master_ha_address=named_port,
        register_all=lambda: None,
    )
    return GroupPlaces(cast(Any, registrar), (GIVEN,))


def test_where_nobody_takes_a_slave_at_the_address_of_its_settings_it_asks_where_a_name_server_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = given("10.0.0.3:10911", NAMED)
    assert places.master_port() == GIVEN
    for _ in range(2):
        places.ended(GIVEN, False, False)
        assert [places.master_port(), places.master_port()] == [NAMED, NAMED], "it stays where it was taken"
        places.ended(NAMED, False, False)
        assert places.master_port() == GIVEN
    (line,) = caplog.messages
    assert line.startswith(f"no master takes this slave at {GIVEN}, its haMasterAddress: it asks at {NAMED}")


@pytest.mark.parametrize(
    ("named", "named_port"),
    [("", ""), ("10.0.0.2:10911", GIVEN), (OWN, "10.0.0.1:10912")],
    ids=["nobody", "the same", "itself"],
)
def test_the_address_of_the_settings_counts_where_a_name_server_names_nobody_else(named: str, named_port: str) -> None:
    places = given(named, named_port)
    places.ended(GIVEN, False, False)
    assert places.master_port() == GIVEN


def test_what_a_command_said_is_not_left_for_the_settings() -> None:
    places = given("", "")
    places.follow(SAID)
    places.ended(SAID.port, False, False)
    assert places.master_port() == SAID.port


def test_a_slave_that_lost_its_master_stays_with_the_address_of_its_settings_while_that_master_leads() -> None:
    """The address may be one of a network for copies alone, which is cut."""
    places = given("10.0.0.2:10911", NAMED)
    assert places.main_port(places.master_port()) == "10.0.0.2:10911"
    places.ended(GIVEN, False, True)
    places.ended(GIVEN, False, False)
    assert places.master_port() == GIVEN
    places._registrar.master_address = "10.0.0.3:10911"  # type: ignore[misc]
    assert places.master_port() == NAMED, "another one leads"
