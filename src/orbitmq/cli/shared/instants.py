"""Instants and spans of time on the command line: as everywhere, but what cannot be read is a wrong command line."""

from __future__ import annotations

import datetime

import typer

from orbitmq import instants
from orbitmq.errors import ConfigurationError
from orbitmq.instants import instant, span

__all__ = ["instant", "parse_due_ms", "parse_instant_ms", "parse_span_ms", "span"]


def parse_span_ms(option: str, text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `10m`, `2h`, `7d`. `BadParameter`."""
    try:
        return instants.parse_span_ms(option, text)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error


def parse_due_ms(option: str, text: str, now_ms: int) -> int:
    """As `parse_instant_ms`, for instants that lie ahead: a span is from now on. `BadParameter`."""
    try:
        return instants.parse_due_ms(option, text, now_ms)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error


def parse_instant_ms(option: str, text: str, now_ms: int, zone: datetime.tzinfo | None = None) -> int:
    """Milliseconds since the epoch of `2024-05-01T12:00:00Z`, of milliseconds as they are, or of a span before now (`10m`).

    An instant without an offset is local time of `zone`, or of this machine. `BadParameter`.
    """
    try:
        return instants.parse_instant_ms(option, text, now_ms, zone)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
