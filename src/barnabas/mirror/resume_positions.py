"""Finds the offset from which mirroring of a partition resumes: the end of the target's log.

The mirror runs this search at its start and after each failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from barnabas.clock import Clock
from barnabas.errors import BarnabasError, reason_of
from barnabas.mirror.errors import DivergedError, MirrorError
from barnabas.mirror.events import EventReporter
from barnabas.mirror.ledger import PartitionMark
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_link import Known, PartitionLink
from barnabas.mirror.resume_search import Ends, ResumeSearch, Steps
from barnabas.mirror.source_fetcher import OnStopped
from barnabas.mirror.target_tail import TargetTail, lost_records

SCAN_BYTES = 4 * 1024 * 1024
AT_ONCE = 16
"""The maximum number of partitions whose logs the mirror reads at the same time."""
CONFIRMED_AT_ONCE = 20
"""The maximum number of idle partitions that one round compares with the source. The limit keeps rounds short."""
CONFIRMED_RECORDS_MAX = 10_000
"""The maximum number of new records that a comparison reads in a partition. If there are more, only the last batch is
compared."""
CONFIRM_S = 5.0
"""The time limit in seconds for the comparison of one partition; a comparison that exceeds the limit is repeated in a
later round."""

log = logging.getLogger(__name__)


class ResumePositions:
    """Finds the resume positions of partitions and checks idle partitions against the source.

    :param ledger: the ledger of the target cluster.
    """

    def __init__(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        ledger: LedgerTopic,
        clock: Clock,
        events: EventReporter,
        on_stopped: OnStopped,
    ) -> None:
        self._source = source
        self._target = target
        self._ledger = ledger
        self._clock = clock
        self._events = events
        self._on_stopped = on_stopped
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def watch_link(self, link: PartitionLink) -> None:
        """Find the resume position each time that `link.attention` is set, until the task is cancelled."""
        backoff = self._target.cluster.backoff
        while True:
            await link.attention.wait()
            if link.tries:
                await asyncio.sleep(backoff.delay_s(link.tries - 1))
            link.attention.clear()
            try:
                async with self._turns:
                    await self._attend(link)
            except MirrorError as error:
                self._on_stopped(link, error)
            except BarnabasError as error:
                link.reset_after(str(error))

    async def _attend(self, link: PartitionLink) -> None:
        if link.stopped is not None and not link.is_tried_again:
            return
        if link.is_out_of_range or not link.copy.is_placed:
            await self.place(link)  # another mirror may already have advanced past the deleted offset
        if link.is_out_of_range:
            await self._skip_deleted(link)
        link.stopped, link.is_tried_again = None, False

    async def place(self, link: PartitionLink) -> None:
        """Read the end of the target's log, compare it with the source, and resume the partition from there.

        :raises DivergedError: the target's records differ from the source's.
        """
        asked_at_s = self._clock.monotonic()
        source_term = await self._source.begin_term(link.source)
        target_term = await self._target.begin_term(link.target)
        before = link.copy.offsets
        tail, look, source = await self._look(link)
        offsets = tail.offsets
        if before is not None and offsets is not None:
            if (before.source_end, before.target_end) == (offsets.source_end, offsets.target_end):
                offsets = before  # the map in memory may have more runs than the map in the ledger
            elif tail.remark is None and before.target_end > offsets.target_end:
                tail.remark = lost_records(link.target, offsets.target_end, before.target_end)
        is_new = offsets is None
        if offsets is None:
            _, end = await self._target.ends(link.target)
            offsets = OffsetMap(source.start, end)
        begins = self._begin_account(link, offsets)
        if is_new or begins:
            first = PartitionMark(link.target_topic_id.hex(), tail.origin, offsets.runs, link.reported_to)
            # Write the first offsets to the ledger before the first record is mirrored, in case this process is killed
            # soon.
            await self._ledger.write({PartitionMark.key(*link.target): first.value()})
            link.written = first
        if tail.remark:
            self._events.report(str(link.source), "remark", reason=tail.remark)
        link.copy.place(offsets, tail.origin, asked_at_s, await self._count_from(link, offsets))
        link.copy.last_source = look.last_source
        link.source_term, link.target_term = source_term, target_term
        link.source_epoch = max(look.source_epoch, source_term.epoch)
        link.confirmed = link.known
        link.counts.replaced += 1

    async def check_idle(self, links: Iterable[PartitionLink]) -> None:
        """Check whether the target's logs of idle partitions have changed, and compare new records with the source.

        The partitions take turns. A comparison covers at least the last batch. It detects a batch of another writer
        with the producer fields of the mirror's next batch. The target would treat the mirror's own batch as a
        duplicate of that batch.
        """
        resting = {link.target: (link, _target_end(link)) for link in links if link.is_idle}
        found = await self._target.log_ends(resting)
        for where, (link, end) in resting.items():
            if where in found and found[where] != end and link.is_idle and _target_end(link) == end:
                link.recheck()
        unconfirmed = [link for link, end in resting.values() if link.is_idle and _confirmed_end(link) != end]
        for link in unconfirmed[:CONFIRMED_AT_ONCE]:
            await self._confirm(link)

    async def _confirm(self, link: PartitionLink) -> None:
        """Compare the records since the last comparison with the source, if the partition stays idle during the
        comparison."""
        end = _target_end(link)
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self._look(link)
        except DivergedError as error:
            self._on_stopped(link, error)
            return
        except (BarnabasError, TimeoutError) as error:
            log.debug(
                "%s: cannot compare the last batch with the source: %s; a later round retries",
                link.source,
                reason_of(error),
            )
            return
        if link.is_idle and _target_end(link) == end:
            link.confirmed = link.known

    async def _look(self, link: PartitionLink) -> tuple[TargetTail, ResumeSearch, Ends]:
        """Read the partition's log in both clusters and compare them.

        :raises DivergedError: the target's records differ from the source's, or differed earlier and a new comparison
        is impossible because records are deleted.
        """
        known = self._known(link)
        target = Ends(*await self._target.ends(link.target))
        confirmed = _confirmed_since(link, target.start)
        offsets, origin, last_source = known if confirmed is None else confirmed
        source = Ends(*await self._source.ends(link.source))
        tail = TargetTail(link.target, link.copy.lineage, offsets, origin, *target)
        look = ResumeSearch(link.target, tail, source, target, last_source)
        try:
            await self._run(link, look.steps(), source, target)
            _check_proof(link, look, tail)
        except DivergedError as error:
            # Fetches use topic names, so check that both names still belong to the same topics.
            await self._source.check_topic(link.source.topic, link.source_topic_id)
            await self._target.check_topic(link.target.topic, link.target_topic_id)
            if confirmed is not None:
                link.rewind()  # the next comparison starts at the last offsets that were proved equal
            await self._note_divergence(link, str(error))
            raise
        link.diverged = None
        return tail, look, source

    async def _run(self, link: PartitionLink, steps: Steps, source: Ends, target: Ends) -> None:
        try:
            read = next(steps)
            while True:
                if read.is_source:
                    data = await self._source.fetch(link.source, read.offset, SCAN_BYTES, source.end)
                else:
                    data = await self._target.fetch(link.target, read.offset, SCAN_BYTES, target.end)
                read = steps.send(data)
        except StopIteration:
            return

    async def _note_divergence(self, link: PartitionLink, reason: str) -> None:
        """Write the reason of a divergence to the ledger, so that the next mirror knows it."""
        link.diverged = reason
        mark = link.mark
        if mark is None or mark == link.written:
            return
        try:
            await self._ledger.write({PartitionMark.key(*link.target): mark.value()})
        except BarnabasError as error:
            log.debug("ledger: cannot write the divergence of %s: %s; the next round retries", link.source, error)
        else:
            link.written = mark

    def _begin_account(self, link: PartitionLink, offsets: OffsetMap) -> bool:
        """Start the audit account at the last reported offset. Return whether this is its first start."""
        account = link.copy.account
        mark = self._mark(link)
        if link.reported_to is None and mark is not None:
            link.reported_to = mark.reported_to
        if account is None or account.counted_to is not None:
            return False
        begins = link.reported_to is None
        account.begin(offsets.source_end if link.reported_to is None else link.reported_to)
        link.reported_to = account.reported_to
        return begins

    async def _count_from(self, link: PartitionLink, offsets: OffsetMap) -> int | None:
        """Return the source offset of the first uncounted record in the target; None if there is nothing to count now.

        A postponed audit counts nothing. When the audit resumes, it triggers a recheck of the partition. The recheck
        must not run between this method and `copy.place`, so the method does not await in this case.
        """
        account = link.copy.account
        if account is None or account.counted_to is None or account.counted_to >= offsets.source_end:
            return None
        if account.topic.is_put_off:
            return None
        start, end = await self._source.ends(link.source)
        if end < offsets.source_end:
            return None  # the source has lost its last records; the next fetch reports the loss
        return max(start, account.counted_to)

    def _known(self, link: PartitionLink) -> Known:
        """Return the offsets known for a partition: from acknowledgements in memory, or else from the ledger."""
        if link.copy.offsets is not None:
            return link.known
        mark = link.base = self._mark(link)
        if mark is None:
            return Known(None, None, None)
        link.diverged = link.diverged or mark.diverged
        return Known(OffsetMap.of(mark.runs), mark.origin, mark.last_source)

    def _mark(self, link: PartitionLink) -> PartitionMark | None:
        mark = self._ledger.find(PartitionMark, PartitionMark.key(*link.target))
        return mark if mark is not None and mark.target_topic_id == link.target_topic_id.hex() else None

    async def _skip_deleted(self, link: PartitionLink) -> None:
        """Advance to the source's log start offset if retention has deleted the next records in the source."""
        start, _ = await self._source.ends(link.source)
        missing = link.copy.skip_to(start)
        if missing:
            link.counts.source_missing += missing
            self._events.report(
                str(link.source),
                "remark",
                reason=f"{missing} offsets before {start} were deleted in the source before they were mirrored",
            )
        link.is_out_of_range = False


def _check_proof(link: PartitionLink, look: ResumeSearch, tail: TargetTail) -> None:
    """Check that a previously diverged partition is now proved to equal the source.

    :raises DivergedError: one of the clusters has deleted the records that the proof needs.
    """
    if link.diverged is not None and not (look.is_proved and look.is_confirmed and not tail.has_gap):
        raise DivergedError(link.diverged)


def _confirmed_since(link: PartitionLink, target_start: int) -> Known | None:
    """Return the offsets of the last successful comparison, where the next comparison starts.

    Return None if only the last batch can be compared, because there are too many new records or the target has deleted
    some of them.
    """
    confirmed, acknowledged = link.confirmed, link.copy.offsets
    if confirmed is None or confirmed.offsets is None or acknowledged is None:
        return None
    end = confirmed.offsets.target_end
    if end < target_start or acknowledged.target_end - end > CONFIRMED_RECORDS_MAX:
        return None
    return confirmed._replace(offsets=OffsetMap.of(confirmed.offsets.runs))


def _confirmed_end(link: PartitionLink) -> int | None:
    confirmed = link.confirmed
    return None if confirmed is None or confirmed.offsets is None else confirmed.offsets.target_end


def _target_end(link: PartitionLink) -> int | None:
    return None if link.copy.offsets is None else link.copy.offsets.target_end
