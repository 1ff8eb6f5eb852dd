"""Who promotes which rows: claims, leases, begun shares, and what an operator may do about a broker that is away.

A claimed share that was not begun goes to another broker when its lease runs out. Leases are no part of the log: they are kept here
by the owner's monotonic clock, so a clock that is set changes none, and after a start of the owner each begins anew. That is safe,
because beginning a share compares the epoch of the claim.

Rules of this file
1. Pure: times are arguments. `now_ms` is wall-clock time and says how far the horizon reaches; `steady_ms` is monotonic.
2. A begun share is never given to another broker. What its broker was not allowed to store may be, as a share of its own.
3. A broker gets no second share of one bucket while it has one: its log says how far it came by the highest row number.
4. Brokers that ask at the same time get about as many shares each. One that stops asking is not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.limits.far import FAR_TABLE_AHEAD_MAX, FAR_TABLE_CLOSED_MAX, FAR_TABLE_SHARES_MAX
from orbitmq.protocol.far_table import (
    AdvanceShare,
    BeginShare,
    ClaimShare,
    ReleaseShare,
    ShareChanged,
    ShareReleased,
    SharesClaimed,
    ShareView,
    TableVerdict,
)
from orbitmq.timing.far_table.catalog import Catalog, Decided, Rules, Share
from orbitmq.timing.far_table.changes import Advanced, AnyChange, Begun, Claimed, Closed, Released

Holder = tuple[str, str]
"""A broker and its store."""


class Leases:
    """Until when claimed shares are kept, and who asked lately. Not durable; a new one at every start of the owner."""

    def __init__(self, started_ms: int) -> None:
        """`started_ms` is monotonic: what was claimed before has a whole lease from then on."""
        self._started_ms = started_ms
        self._renewed: dict[int, int] = {}
        """Epoch of a claim -> when its broker was last heard of."""
        self._asked: dict[Holder, int] = {}
        """When a broker asked last, whether it wanted one more or not."""
        self._wanting: set[Holder] = set()
        self._given: dict[Holder, int] = {}
        """How many shares each of those brokers got since it asks without a break."""

    def asked(self, holder: Holder, steady_ms: int, lease_ms: int, *, wants: bool) -> None:
        """A broker asks, maybe for one more share."""
        for other, at_ms in list(self._asked.items()):
            if steady_ms - at_ms > lease_ms:
                del self._asked[other]
                self._given.pop(other, None)
                self._wanting.discard(other)
        self._asked[holder] = steady_ms
        if holder not in self._given:
            self._given[holder] = min(self._given.values(), default=0)
        if wants:
            self._wanting.add(holder)
        else:
            self._wanting.discard(holder)

    def renew(self, epoch: int, steady_ms: int) -> None:
        self._renewed[epoch] = steady_ms

    def is_over(self, epoch: int, steady_ms: int, lease_ms: int) -> bool:
        return steady_ms - self._renewed.get(epoch, self._started_ms) > lease_ms

    def given(self, holder: Holder, epoch: int, steady_ms: int) -> None:
        self._given[holder] += 1
        self.renew(epoch, steady_ms)

    def forget(self, epoch: int) -> None:
        self._renewed.pop(epoch, None)

    def is_ahead(self, holder: Holder, counts: Mapping[Holder, int]) -> bool:
        """Whether this broker got more shares lately than another that wants one as well. `counts`: how many each one has."""
        others = [
            self._given[other]
            for other in self._wanting
            if other != holder and counts.get(other, 0) < FAR_TABLE_SHARES_MAX
        ]
        return bool(others) and self._given[holder] >= min(others) + FAR_TABLE_AHEAD_MAX


def claim_share(
    catalog: Catalog, leases: Leases, request: ClaimShare, now_ms: int, steady_ms: int, rules: Rules
) -> Decided:
    """Answer: SharesClaimed."""
    if request.table != catalog.table:
        return Decided(SharesClaimed(TableVerdict.WRONG_TABLE, reason=_wrong_table(catalog, request.table)))
    holder = request.broker, request.store
    counts: dict[Holder, int] = {}
    own: list[tuple[int, Share]] = []
    for start, share in catalog.shares():
        if share.epoch:
            counts[share.broker, share.store] = counts.get((share.broker, share.store), 0) + 1
            if (share.broker, share.store) == holder and (share.is_begun or request.keeps):
                own.append((start, share))
                if not share.is_begun:
                    leases.renew(share.epoch, steady_ms)
    leases.asked(holder, steady_ms, rules.lease_ms, wants=request.wants)
    changes: tuple[AnyChange, ...] = ()
    if request.wants and counts.get(holder, 0) < FAR_TABLE_SHARES_MAX and not leases.is_ahead(holder, counts):
        taken = {start for start, _ in own}
        changes = _next_share(catalog, leases, holder, taken, now_ms, steady_ms, rules)
    views = [_view(catalog, start, share) for start, share in own]
    if changes:
        claimed = changes[-1]
        assert isinstance(claimed, Claimed)
        leases.given(holder, claimed.epoch, steady_ms)
        views.append(_claimed_view(catalog, claimed))
        views.sort(key=lambda view: (view.bucket_ms, view.first))
    return Decided(
        SharesClaimed(
            TableVerdict.OK,
            catalog.version + len(changes),
            shares=views,
            frontier_ms=catalog.frontier_ms or 0,
            bucket_ms=catalog.bucket_ms,
            pause_ms=_pause_ms(catalog, now_ms, rules),
        ),
        changes,
    )


def _next_share(
    catalog: Catalog,
    leases: Leases,
    holder: Holder,
    taken: set[int],
    now_ms: int,
    steady_ms: int,
    rules: Rules,
) -> tuple[AnyChange, ...]:
    """The earliest share that is free; else the earliest bucket that may be closed."""
    broker, store = holder
    for start, share in catalog.shares():
        if share.is_begun or start in taken:
            continue
        if share.epoch:
            if (share.broker, share.store) == holder or not leases.is_over(share.epoch, steady_ms, rules.lease_ms):
                continue
            leases.forget(share.epoch)
        return (Claimed(start, share.first, catalog.next_epoch, broker, store),)
    start_ms = catalog.next_bucket()
    if start_ms is None or start_ms > now_ms + rules.horizon_ms or len(catalog.buckets) >= FAR_TABLE_CLOSED_MAX:
        return ()
    return Closed(start_ms), Claimed(start_ms, 0, catalog.next_epoch, broker, store)


def _pause_ms(catalog: Catalog, now_ms: int, rules: Rules) -> int:
    """A third of a lease, or less when the next bucket may be closed before."""
    pause = rules.lease_ms // 3
    start_ms = catalog.next_bucket()
    if start_ms is None or start_ms <= now_ms + rules.horizon_ms:
        return pause
    return min(pause, start_ms - rules.horizon_ms - now_ms)


def begin_share(catalog: Catalog, leases: Leases, request: BeginShare, rules: Rules) -> Decided:
    """Answer: ShareChanged. Compare and set by the epoch of the claim, whether its lease has run out or not."""
    share, refused = _share(catalog, request)
    if share is None:
        assert refused is not None
        return Decided(refused)
    recall_count = len(catalog.recalls.get(request.bucket_ms, ()))
    if share.is_begun:
        answer = ShareChanged(
            TableVerdict.REPEATED, catalog.version, allowed=share.allowed, end=share.end, recall_count=recall_count
        )
        return Decided(answer)
    leases.forget(share.epoch)
    allowed = share.first + rules.grant_rows
    if share.end is not None:
        allowed = min(allowed, share.end)
    answer = ShareChanged(
        TableVerdict.OK, catalog.version + 1, allowed=allowed, end=share.end, recall_count=recall_count
    )
    return Decided(answer, (Begun(request.bucket_ms, request.first, allowed),))


def advance_share(catalog: Catalog, request: AdvanceShare, rules: Rules) -> Decided:
    """Answer: ShareChanged. A share that ends before its bucket does is finished when everything in it is stored."""
    share, refused = _share(catalog, request)
    if share is None:
        assert refused is not None
        return Decided(refused)
    if not share.is_begun:
        return Decided(ShareChanged(TableVerdict.NOT_YOURS, catalog.version, "the share is not begun"))
    if request.stored > share.allowed:
        reason = f"rows before {share.allowed} are allowed, {request.stored} cannot be stored"
        return Decided(ShareChanged(TableVerdict.NOT_YOURS, catalog.version, reason, allowed=share.allowed))
    stored = max(share.stored, request.stored)
    is_done = request.is_done or (share.end is not None and stored >= share.end)
    allowed = max(share.allowed, stored + rules.grant_rows)
    if share.end is not None:
        allowed = min(allowed, share.end)
    if (stored, allowed) == (share.stored, share.allowed) and not is_done:
        answer = ShareChanged(TableVerdict.REPEATED, catalog.version, allowed=allowed, end=share.end)
        return Decided(answer)
    return Decided(
        ShareChanged(TableVerdict.OK, catalog.version + 1, allowed=allowed, end=share.end),
        (Advanced(request.bucket_ms, request.first, stored, allowed, is_done),),
    )


def release_share(catalog: Catalog, request: ReleaseShare) -> Decided:
    """Answer: ShareReleased."""
    if request.table != catalog.table:
        return Decided(ShareReleased(TableVerdict.WRONG_TABLE, reason=_wrong_table(catalog, request.table)))
    bucket = catalog.buckets.get(request.bucket_ms)
    share = None if bucket is None else bucket.shares.get(request.first)
    if share is None:
        return Decided(ShareReleased(TableVerdict.GONE, catalog.version, "there is no such share; it may be finished"))
    if share.broker != request.broker or not share.is_begun:
        holder = f"begun by {share.broker}" if share.is_begun else "not begun: its lease frees it"
        return Decided(ShareReleased(TableVerdict.NOT_YOURS, catalog.version, f"the share is {holder}"))
    verdict, changes = TableVerdict.REPEATED, tuple[AnyChange, ...]()
    if share.end is None or request.give_up:
        verdict, changes = TableVerdict.OK, (Released(request.bucket_ms, request.first, request.give_up),)
    answer = ShareReleased(verdict, catalog.version + len(changes), stored=share.stored, allowed=share.allowed)
    return Decided(answer, changes)


def _share(catalog: Catalog, request: BeginShare) -> tuple[Share | None, ShareChanged | None]:
    """The share of a request if it is the sender's, or the refusal."""
    if request.table != catalog.table:
        return None, ShareChanged(TableVerdict.WRONG_TABLE, reason=_wrong_table(catalog, request.table))
    bucket = catalog.buckets.get(request.bucket_ms)
    share = None if bucket is None else bucket.shares.get(request.first)
    if share is None:
        return None, ShareChanged(TableVerdict.GONE, catalog.version, "the share is finished, or was never closed")
    if (share.broker, share.store, share.epoch) != (request.broker, request.store, request.epoch):
        reason = f"the share is claimed by {share.broker or 'nobody'} under epoch {share.epoch}"
        return None, ShareChanged(TableVerdict.NOT_YOURS, catalog.version, reason)
    return share, None


def _view(catalog: Catalog, start_ms: int, share: Share) -> ShareView:
    return ShareView(
        start_ms,
        share.first,
        share.epoch,
        [catalog.files[name] for name in catalog.buckets[start_ms].files],
        end=share.end,
        is_begun=share.is_begun,
        allowed=share.allowed,
        stored=share.stored,
        recall_count=len(catalog.recalls.get(start_ms, ())),
    )


def _claimed_view(catalog: Catalog, claimed: Claimed) -> ShareView:
    bucket = catalog.buckets.get(claimed.bucket_ms)
    if bucket is None:  # it is closed by this very decision
        files = sorted(
            (file for file in catalog.open_files() if catalog.overlaps(file, claimed.bucket_ms)),
            key=lambda file: file.name,
        )
        end = None
    else:
        files = [catalog.files[name] for name in bucket.files]
        end = bucket.shares[claimed.first].end
    recalls = len(catalog.recalls.get(claimed.bucket_ms, ()))
    return ShareView(claimed.bucket_ms, claimed.first, claimed.epoch, files, end=end, recall_count=recalls)


def _wrong_table(catalog: Catalog, table: str) -> str:
    return f"this broker owns the catalog of far table {catalog.table}, not of {table}: compare table.json of the URL"
