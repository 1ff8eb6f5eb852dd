"""The storage of the far tier as the keeper enters it: is it the right one, and in storage that copies share, who writes there.

Rules of this file
1. `enter` comes before each step, on the helper's thread; everything else runs on the loop, while no step does.
2. A tenure as a writer lasts until `leave`. One that another broker has ended is not begun again before that: two would take turns.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from orbitmq.timing.far.state_file import StateFile
from orbitmq.timing.far.tier import FarFileDamagedError, Tier, refuse_foreign, refuse_other_storage
from orbitmq.timing.far.writers import written_by

T = TypeVar("T")


def _have_all(position: int) -> bool:
    return True


def _nobody(writer: str) -> None:
    """Waits to hear who writes."""


class Sharing(NamedTuple):
    """What a broker is to storage that all copies of its log share; with an empty `mark` it shares none."""

    mark: str = ""
    """Of that storage; see `Tier.mark`."""
    directory: str = ""
    """The id of this broker's directory."""
    takes_over: bool = False
    """Another broker led until this one did, and wrote there."""
    copies_have: Callable[[int], bool] = _have_all
    """Whether every copy that is known follows now, and has the log up to a position."""
    began: Callable[[str], None] = _nobody
    """Told the name under which this broker writes there from now on."""
    epoch: int | None = None
    """Of a replicated group, in which this broker leads; None of a pair."""


class StorageEntry:
    """Of one keeper."""

    def __init__(self, saving: StateFile) -> None:
        self._saving = saving
        self.sharing = Sharing()
        self.is_open = False
        self.writer = ""
        """The name of this tenure in shared storage; empty before it began, and where none is shared."""
        self._told = ""

    def share(self, sharing: Sharing) -> None:
        """From the next step on."""
        if sharing.mark != self.sharing.mark:
            self.is_open = False
        self.sharing = sharing

    def enter(self, tier: Tier) -> bool:
        """Whether this opened it. Raises FarTierError where it cannot be used, or another broker writes there by now."""
        sharing = self.sharing
        if sharing.mark and not self.is_open:
            refuse_other_storage(tier.mark(""), sharing.mark)
        if self.writer:
            tier.lead(sharing.directory, self.writer, False, None)
        if self.is_open:
            return False
        opened = tier.open()
        refuse_foreign(opened, self._saving.serial, self._saving.store_id, is_shared=bool(sharing.mark))
        if sharing.mark and not self.writer:
            self.writer = tier.lead(sharing.directory, "", sharing.takes_over, sharing.epoch)
        self.is_open = True
        return True

    def do(self, tier: Tier, job: Callable[[Tier], T], *, writes: bool) -> T:
        """A step in storage that was entered, which `writes` files or does not. Raises what `job` does, and as `check`."""
        try:
            result = job(tier)
        except FarFileDamagedError:
            self.check(tier)
            raise
        if writes:
            self.check(tier)
        return result

    def check(self, tier: Tier) -> None:
        """After files were written, or one was missed: a mount that is lost leaves an empty directory, in which both happens. Raises
        FarTierError where the storage is not there any more."""
        if self.sharing.mark:
            refuse_other_storage(tier.mark(""), self.sharing.mark)

    @property
    def has_to_claim(self) -> bool:
        """Whether this broker leads a group and has not begun to write there: then whoever led before finds that out."""
        return self.sharing.epoch is not None and not self.writer

    def tell(self) -> None:
        """A step ended well: who waits hears of a tenure that it began."""
        if self.writer != self._told:
            self._told = self.writer
            self.sharing.began(self.writer)

    def leave(self) -> None:
        """Another broker may write until the next time."""
        self.is_open = False
        self.writer = self._told = ""

    def written_by(self) -> str:
        """The end of the name of a file that is written now; another one each time."""
        return written_by(self.writer, secrets.token_hex(4))
