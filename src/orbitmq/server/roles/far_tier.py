"""The far tier of a broker, put together from its settings.

Rules of this file
1. Without pyarrow nothing is taken into the tier. A store that has messages there does not start: they would be forgotten.
"""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.replication.settings import BrokerKind
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.store.files import Files
from orbitmq.store.worker import Notify, ThreadWorker
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.process import Helper, Helpers, ProcessTier, is_there

logger = logging.getLogger("orbitmq.server")

FAR_DIRECTORY = "far"


def far_place(settings: ServerSettings) -> str:
    """Where the tier's files lie, as directory or URL."""
    return settings.broker.timer_far_url or str(settings.data / FAR_DIRECTORY)


def far_folders(settings: ServerSettings, files: Files) -> list[Path]:
    """Where the tier lies in a local directory: that one, so that the store can claim it. Brokers with one configuration file would else
    write their files over each other's, which have the same names. It is made where a key names it. A slave or a member of a group claims
    none: others share it, and who writes there says so in it."""
    place = far_place(settings)
    is_shared = settings.replication.kind is BrokerKind.SLAVE or settings.replication.is_member
    if is_shared and settings.broker.timer_far_url:
        return []
    if "://" in place and not place.startswith("file://"):
        return []
    folder = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    if settings.broker.timer_far_url:
        try:
            files.make_dirs(folder)
        except OSError as error:  # the tier says so too, and tries it again
            logger.warning("%s cannot be made, so it is not known whether another broker uses it: %s", folder, error)
            return []
    return [folder] if files.is_dir(folder) and folder.resolve() != settings.data.resolve() else []


def far_timers(settings: ServerSettings, files: Files, clock: Clock, notify: Notify) -> FarTimers:
    """The far tier; its process starts when it is first needed."""
    own = settings.broker
    place = far_place(settings)
    helpers = None
    if is_there():
        helpers = Helpers(
            Helper(clock, ProcessTier(place), ThreadWorker("orbitmq-far", notify)),
            Helper(clock, ProcessTier(place), ThreadWorker("orbitmq-far-questions", notify)),
        )
    return FarTimers(
        files,
        settings.data,
        clock,
        helpers,
        horizon_ms=own.timer_far_horizon_s * 1_000,
        precision_ms=own.timer_precision_ms,
        takes=own.timer_far_enable and own.timer_wheel_enable,
        url=place if "://" in place else str(Path(place).absolute()),
    )


def refuse_far_without_extra(root: Path, far: FarTimers) -> None:
    """Raises ConfigurationError when messages wait in the tier and nothing can read them."""
    if far.is_needed and not far.has_tier:
        raise ConfigurationError(
            f"the store {root} holds {far.held.pending_count} messages in its far tier, and pyarrow is not installed: "
            "they would not be delivered",
            remedy="install it: pip install 'orbitmq[lake]'",
        )
