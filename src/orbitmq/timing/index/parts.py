"""The parts of the index: runs in files, full gatherings on their way into one, the gathering that is open, and what is missing.

Whatever goes wrong with the index, a damaged file, a journal that a power failure tore, years without an index, ends up as a range of
queue offsets that is missing, and there is one way to put it right: read the records of what is pending in the range.

Rules of this file
1. A timer that is known stands in one part only. So what is counted over all parts is counted once.
2. A gathering gives way to its run, and a run to what is made of it, at one moment; files that are not needed any more are
   removed by the durable save after the one that says so.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.index.directory import VERSION, IndexDirectory, ListedRun, Manifest, Work
from orbitmq.timing.index.gathering import CAPACITY, Gathering, Source
from orbitmq.timing.index.journal import (
    NOTHING,
    IndexJournal,
    StoredGathering,
    Witness,
    cut_gathering,
    cut_loaded,
    load_journal,
)
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.run_format import Marked
from orbitmq.timing.timers.facts import TimerFacts

Range = tuple[int, int]
"""(first queue offset, end)"""


class Missing:
    """Ranges that do not touch each other, ascending."""

    __slots__ = ("added_count", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.ranges: list[Range] = []
        self.added_count = 0
        """How often a range was added: who fills them notices that there are others."""
        for begin, end in ranges:
            self.add(begin, end)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def add(self, begin: int, end: int) -> None:
        """The range, too, is not known."""
        if begin >= end:
            return
        self.added_count += 1
        apart = []
        for low, high in self.ranges:
            if high < begin or end < low:
                apart.append((low, high))
            else:
                begin, end = min(begin, low), max(end, high)
        self.ranges = sorted([*apart, (begin, end)])

    def overlaps(self, begin: int, end: int) -> bool:
        return any(low < end and begin < high for low, high in self.ranges)

    def keep(self, is_wanted: Callable[[int, int], bool]) -> None:
        """Only those ranges are missing of which somebody wants to know something."""
        self.ranges = [one for one in self.ranges if is_wanted(*one)]

    def known_below(self, queue_offset: int) -> None:
        """Everything below is known now."""
        self.ranges = [(max(low, queue_offset), high) for low, high in self.ranges if high > queue_offset]


logger = logging.getLogger("orbitmq.timing")

CLOSED_MAX: Final = 6
"""Full gatherings that wait to become runs: 60 MB. More wait only when files cannot be written."""


class IndexShape(NamedTuple):
    """How much goes into a part. Tests take less."""

    capacity: int = CAPACITY
    """Entries of a gathering, and so of a run."""
    carried: int = 2_048
    """A full gathering of which no more than this is still pending makes no run: the rest is carried on in the next one."""
    small: int = 16_384
    """A run with no more than this still to come is put together with others of its kind."""


class Gathered:
    """A gathering with its journal."""

    __slots__ = ("_witness", "begin", "ends", "gathering", "journal", "last", "replaces")

    def __init__(self, begin: Witness, gathering: Gathering | None = None, replaces: int = -1) -> None:
        self.gathering = gathering or Gathering()
        self.begin = begin
        """Everything before it stands in runs, or is missing."""
        self.replaces = replaces
        self.last: TimerFacts | None = None
        """The last record that was heard of."""
        self._witness = begin
        self.journal: IndexJournal | None = None
        self.ends: list[Witness] = []
        """What the blocks of its journal say, where it was loaded."""

    @property
    def witness(self) -> Witness:
        """The last record that is known with it."""
        last = self.last
        if last is None:
            return self._witness
        return Witness(last.queue_offset + 1, last.physical_offset, last.store_timestamp)

    @witness.setter
    def witness(self, value: Witness) -> None:
        self.last, self._witness = None, value


class Parts:
    """All of them, and what of them is on the disk."""

    def __init__(self, files: Files, root: Path, shape: IndexShape) -> None:
        self._files = files
        self.shape = shape
        self.directory = IndexDirectory(files, root)
        self.runs: list[Run] = []
        self._marked: tuple[Marked[Run], Marked[Run]] | None = None
        """What ids and keys the runs may have; None when there are other runs than the last time that somebody asked."""
        self.closed: list[Gathered] = []
        """Oldest first."""
        self.open = Gathered(NOTHING)
        self.filling: Gathering | None = None
        """What was missing and has been found, until it is a run."""
        self.missing = Missing()
        self.next_offset = 0
        """The lowest queue offset that was not heard of."""
        self.spent: list[Gathering] = []
        """Nobody asks for them any more; they are emptied in steps."""
        self._unsynced: set[Path] = set()
        self._unsynced_journals: list[IndexJournal] = []
        self._retired: list[IndexJournal] = []
        """Journals that are not needed any more; one of them may be being synced."""
        self._dropped: list[Path] = []
        self._changed = False
        self._saving: Work | None = None
        self.trouble_count = 0
        """Runs that were damaged or gone."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def gathered(self) -> list[Gathered]:
        return [*self.closed, self.open]

    def sources(self) -> list[Source]:
        filling = () if self.filling is None else (self.filling,)
        return [*self.runs, *(one.gathering for one in self.gathered()), *filling]

    def having_id(self, hashed: int) -> list[Source]:
        """Sources that may have a hash of a unique key."""
        return self._having(0, hashed)

    def having_key(self, hashed: int) -> list[Source]:
        """Sources that may have a hash of a key."""
        return self._having(1, hashed)

    def _having(self, which: int, hashed: int) -> list[Source]:
        marked = self._marked
        if marked is None:
            runs = self.runs
            marked = Marked([(run.id_marks, run) for run in runs]), Marked([(run.key_marks, run) for run in runs])
            self._marked = marked
        return [*marked[which].having(hashed), *(one.gathering for one in self.closed), self.open.gathering]

    def contents(self) -> list[Run | Gathering]:
        """For counting: every entry stands in one of these, once."""
        return [*self.runs, *(one.gathering for one in self.gathered())]

    def is_full(self, gathering: Gathering) -> bool:
        return len(gathering) >= self.shape.capacity

    def is_gathered(self, queue_offset: int) -> bool:
        for one in self.gathered():
            offsets = one.gathering.offsets
            place = bisect_left(offsets, queue_offset)
            if place < len(offsets) and offsets[place] == queue_offset:
                return True
        return False

    @property
    def entry_count(self) -> int:
        """Entries, those that are pending no longer included."""
        return sum(map(len, self.runs)) + sum(len(one.gathering) for one in self.gathered())

    @property
    def size_bytes(self) -> int:
        """Size of all runs."""
        return sum(run.size_bytes for run in self.runs)

    # --- gathering ----------------------------------------------------------------------------------------------------

    def follow(self, facts: TimerFacts, witness_at: Callable[[int], Witness]) -> None:
        """In recovery: the next record is this one. Whatever is between it and the one before is not known."""
        if facts.queue_offset > self.next_offset:
            self._miss(witness_at(facts.queue_offset))

    def _miss(self, begin: Witness) -> None:
        """Nothing is known between what was heard of last and here."""
        self.missing.add(self.next_offset, begin.end_offset)
        self.close(begin)
        self.next_offset = begin.end_offset

    def close(self, begin: Witness | None = None) -> None:
        """Begin a new gathering, which knows what follows on a record; on the last one that was heard of unless it is given."""
        full = self.open
        self.write()
        if len(full.gathering):
            self.closed.append(full)
            if len(self.closed) > CLOSED_MAX:
                self._give_up(self.closed[0])
        else:
            self._drop_journal(full)
        self.open = Gathered(begin or full.witness)

    def carry_on(self, pending: Sequence[int]) -> None:
        """Begin a new gathering with those entries of the open one whose queue offsets are given; the others are over."""
        full = self.open
        self.write()
        replaced = full.journal.number if full.journal is not None else full.replaces
        self.open = Gathered(full.begin, replaces=replaced)
        for entry in full.gathering.entries_of(pending):
            self.open.gathering.add(entry)
        self.open.witness = full.witness
        if self.write():
            self._drop_journal(full)
        self.spent.append(full.gathering)

    def _give_up(self, gathered: Gathered) -> None:
        """No run can be made: rather than filling the memory, forget."""
        logger.error(
            "the timer index cannot write: %d timers are forgotten and will be collected again", len(gathered.gathering)
        )
        self.closed.remove(gathered)
        self._drop_journal(gathered)
        self._forget_range(gathered.gathering.offsets[0], gathered.gathering.offsets[-1] + 1)

    def _drop_journal(self, gathered: Gathered) -> None:
        if gathered.journal is not None:
            self._retired.append(gathered.journal)
            self._dropped.append(gathered.journal.path)
            self._changed = True

    def write(self) -> bool:
        """Put what was gathered into its journal. When that cannot be written it is tried again with the next call."""
        one = self.open
        if not len(one.gathering) or (one.journal is not None and one.journal.witness == one.witness):
            return True
        try:
            if one.journal is None:
                number = self.directory.new_number()
                path = self.directory.journal_path(number)
                one.journal = IndexJournal(self._files, path, number, one.begin, one.replaces)
            one.journal.write(one.gathering, one.witness)
        except OSError as error:
            logger.warning("the timer index could not write its journal, it is tried again: %s", error)
            return False
        return True

    # --- runs ---------------------------------------------------------------------------------------------------------

    def new_run_path(self) -> Path:
        """Raises OSError."""
        return self.directory.run_path(self.directory.new_number())

    def sealed(self, gathered: Gathered, path: Path) -> None:
        """The run in `path` holds what the oldest closed gathering held. Raises StoreDamagedError, OSError."""
        self._add_run(path)
        self.closed.remove(gathered)
        self._drop_journal(gathered)
        self.spent.append(gathered.gathering)

    def filled(self, path: Path | None, known_below: int) -> None:
        """The run in `path` holds what was missing below a queue offset; None when that was nothing."""
        self.filling = None
        if path is not None:
            self._add_run(path)
        self._changed = True
        self.missing.known_below(known_below)

    def compacted(self, runs: Sequence[Run], path: Path | None) -> None:
        """The run in `path` holds what is still pending of `runs`; None when that is nothing."""
        if path is not None:
            self._add_run(path)
        for run in runs:
            self.drop_run(run)

    def _add_run(self, path: Path) -> None:
        self.runs.append(Run(self._files, path))
        self._marked = None
        self._unsynced.add(path)
        self._changed = True

    def drop_run(self, run: Run) -> None:
        """Nothing in it is pending any more, or it stands elsewhere."""
        self.runs.remove(run)
        self._marked = None
        self.drop_file(run.path)

    def drop_file(self, path: Path) -> None:
        self._unsynced.discard(path)
        self._dropped.append(path)
        self._changed = True

    def forget_run(self, run: Run, problem: str) -> None:
        """A run is damaged: it is reported, and found again from the records."""
        logger.error("%s: %s; what it held is collected from the log again", run.path, problem)
        self.trouble_count += 1
        self.drop_run(run)
        self._forget_range(run.base_offset, run.last_offset + 1)

    def _forget_range(self, begin: int, end: int) -> None:
        """Nothing is known of a range, nor of what else stands in runs that reach into it: a timer stands in one part only."""
        forgotten = Missing([(begin, end)])
        while True:
            reaching = [run for run in self.runs if forgotten.overlaps(run.base_offset, run.last_offset + 1)]
            if not reaching:
                break
            for run in reaching:
                forgotten.add(run.base_offset, run.last_offset + 1)
                self.drop_run(run)
        for low, high in forgotten:
            self.missing.add(low, high)
        self._changed = True

    # --- saving -------------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        journals = [one.journal.number for one in self.gathered() if one.journal is not None]
        return Manifest(
            [ListedRun(int(run.path.stem), run.base_offset, run.last_offset + 1) for run in self.runs],
            list(self.missing),
            self.gathered()[0].begin,
            min(journals, default=self.directory.next_number),
            VERSION,
        )

    def begin_sync(self) -> None:
        """Note what the next `datasync` has to make durable."""
        for journal in self._retired:
            journal.close()
        self._retired = []
        self._unsynced_journals = [one.journal for one in self.gathered() if one.journal is not None]
        unfinished, self._saving = self._saving, None
        if unfinished is not None:
            self._unsynced |= {path for path in unfinished.sync if path not in self._dropped}
            self._dropped = [*unfinished.remove, *self._dropped]
            self._changed = True
        if self._changed:
            self._saving = Work(sorted(self._unsynced), self.manifest(), self._dropped)
            self._unsynced, self._dropped, self._changed = set(), [], False

    def datasync(self) -> None:
        """Blocks; runs on the worker. What it cannot save the log says once more after a power failure: the next save tries again."""
        work = self._saving
        try:
            for journal in self._unsynced_journals:
                journal.datasync()
            if work is not None:
                self.directory.save(work)
        except OSError as error:
            logger.warning("the timer index was not saved, it is tried again: %s", error)
            return
        self._saving = None

    def close_files(self) -> None:
        """Nothing is found any more; the mappings of runs end with their last user."""
        for one in self.gathered():
            if one.journal is not None:
                one.journal.close()
        for journal in self._retired:
            journal.close()
        self.runs, self._marked = [], None

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up what is on the disk; changes nothing there."""
        if not self.directory.exists:
            return
        known, journal_numbers = self.directory.load()
        manifest = known or Manifest()
        self.open = Gathered(manifest.covered)
        self.next_offset = manifest.covered.end_offset
        for begin, end in manifest.missing:
            self.missing.add(begin, end)
        lost = []
        for listed in manifest.runs:
            path = self.directory.run_path(listed.number)
            try:
                self.runs.append(Run(self._files, path))
            except (StoreDamagedError, OSError) as error:
                logger.error(
                    "a run of the timer index is lost, what it held is collected from the log again: %s", error
                )
                self.trouble_count += 1
                self._dropped.append(path)
                lost.append(listed)
        for listed in lost:
            self._forget_range(listed.begin_offset, listed.end_offset)
        self._load_journals([number for number in journal_numbers if number >= manifest.journals_from])

    def _load_journals(self, numbers: Sequence[int]) -> None:
        loaded: list[tuple[int, StoredGathering]] = []
        for number in numbers:
            content = load_journal(self._files, self.directory.journal_path(number))
            if content is None:
                continue
            before = [(other, cut_loaded(one, content.begin)) for other, one in loaded if other != content.replaces]
            loaded = [(other, one) for other, one in before if one is not None]
            loaded.append((number, content))
        for number, content in loaded:
            gathered = Gathered(content.begin, content.gathering, content.replaces)
            gathered.ends = [witness for witness, _ in content.ends]
            gathered.witness = gathered.ends[-1]
            if content.begin.end_offset > self.next_offset:
                self.missing.add(self.next_offset, content.begin.end_offset)
            self.next_offset = max(self.next_offset, gathered.witness.end_offset)
            if not content.is_cut:
                path = self.directory.journal_path(number)
                gathered.journal = IndexJournal(self._files, path, number, content.begin, content.replaces)
                gathered.journal.continue_behind(content)
            self.closed.append(gathered)
        if self.closed:
            is_full = self.is_full(self.closed[-1].gathering)
            self.open = Gathered(self.closed[-1].witness) if is_full else self.closed.pop()

    def believe(self, is_there: Callable[[Witness], bool], end: Witness) -> None:
        """The log was recovered up to a record. Drop what it does not hold, and what is left over on the disk. Files that the manifest
        lists stay until it is replaced."""
        loaded = [self.gathered()[0].begin, *(witness for one in self.gathered() for witness in one.ends)]
        good = next((one for one in reversed(loaded) if one.end_offset <= end.end_offset and is_there(one)), NOTHING)
        if good != loaded[-1]:
            logger.warning(
                "the timer index knew of more than the log holds: it is taken back to timer %d", good.end_offset
            )
            self._take_back(good)
        if self.next_offset < end.end_offset:
            self._miss(end)
        if self.directory.exists:
            journals = [one.journal.path for one in self.gathered() if one.journal is not None]
            self.directory.remove_others([*(run.path for run in self.runs), *journals, *self._dropped])

    def _take_back(self, good: Witness) -> None:
        """Forget everything from a witness on."""
        end = good.end_offset
        for run in [run for run in self.runs if run.last_offset >= end]:
            if run in self.runs:
                self.drop_run(run)
                self._forget_range(run.base_offset, run.last_offset + 1)
        kept, self.closed = self.gathered(), []
        for one in kept:
            offsets = one.gathering.offsets
            if not len(offsets) or offsets[0] >= end:
                self._drop_journal(one)
            elif offsets[-1] < end:
                self.closed.append(one)
            else:
                self._drop_journal(one)
                cut = Gathered(one.begin, cut_gathering(one.gathering, end))
                cut.witness = good
                self.closed.append(cut)
        self.missing = Missing((low, min(high, end)) for low, high in self.missing)
        self.open = self.closed.pop() if self.closed and not self.is_full(self.closed[-1].gathering) else Gathered(good)
        self.next_offset = end
        self._changed = True
