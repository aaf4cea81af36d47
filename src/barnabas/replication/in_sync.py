"""The leader's state of the followers of a partition, which determines the in-sync replicas and the high watermark.

A broker creates a `RemoteReplicas` object for each partition and leader epoch in which it leads, and drops it when the
epoch ends. The object makes decisions, and the caller executes them. The caller changes the ISR in the metadata store
by compare-and-set. It calls `begin_change` before the write, and `adopt` when the outcome is known.

Invariants: the high watermark never decreases. Each replica in the ISR, and each replica that an unfinished change may
have added, has had all records below the high watermark. A replica that lost such records leaves the ISR. The rules are
the same as in Kafka's `Partition` and `Replica`. They include KIP-497 (the high watermark during an ISR change),
KIP-903 (restarted followers) and KIP-207 (a new leader that does not know the high watermark).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_OFFSET

NO_BROKER_EPOCH = -1
"""The broker epoch of a fetch request without a broker epoch. The leader does not check it."""

EARLIER_EPOCHS_KEPT = 16
"""The number of a follower's earlier broker epochs that the leader keeps, to reject delayed fetches of earlier
registrations.

Broker epochs are random, so their order does not show which epoch is older.
"""

_NEVER_S = float("-inf")


class _Follower:
    """The leader's state of one follower, derived from its fetches."""

    __slots__ = (
        "broker_epoch",
        "caught_up_s",
        "earlier_broker_epochs",
        "fetched_s",
        "holds_back",
        "leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_s: float) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.caught_up_s = caught_up_s
        """The latest known time at which the follower had all records of the leader's log."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.earlier_broker_epochs: tuple[int, ...] = ()
        self.holds_back = False
        """True if the high watermark waits for this follower, because it has caught up but is not in the ISR yet."""
        self.fetched_s = _NEVER_S
        self.leader_end_offset = NO_OFFSET
        """The leader's log end offset at `fetched_s`, the time of the follower's latest fetch."""

    def check_broker_epoch(self, broker_epoch: int) -> None:
        """Check the broker epoch of a fetch.

        A new broker epoch means that the follower has restarted, so its fetch times are reset.

        :raises ApiError: STALE_BROKER_EPOCH if the fetch belongs to an earlier registration of the follower's broker.
        """
        if broker_epoch in (self.broker_epoch, NO_BROKER_EPOCH):
            return
        if broker_epoch in self.earlier_broker_epochs:
            message = "the fetch has the broker epoch of an earlier registration; the broker has registered again"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, message)
        self.earlier_broker_epochs = self.ended_broker_epochs
        self.broker_epoch = broker_epoch
        self.fetched_s = _NEVER_S
        self.leader_end_offset = NO_OFFSET

    @property
    def ended_broker_epochs(self) -> tuple[int, ...]:
        """The broker epochs that are stale after a restart of the follower: the current and earlier broker epochs."""
        if self.broker_epoch == NO_BROKER_EPOCH:
            return self.earlier_broker_epochs
        return (*self.earlier_broker_epochs, self.broker_epoch)[-EARLIER_EPOCHS_KEPT:]

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_s: float) -> bool:
        """Record a fetch of the follower. Return whether the follower has reached the log end offset that the leader
        had at this fetch or at the previous fetch."""
        if fetch_offset >= leader_end_offset:
            caught_up_s = now_s
        elif fetch_offset >= self.leader_end_offset:
            caught_up_s = self.fetched_s
        else:
            caught_up_s = _NEVER_S
        self.caught_up_s = max(self.caught_up_s, caught_up_s)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = leader_end_offset
        self.fetched_s = now_s
        return caught_up_s > _NEVER_S


class RemoteReplicas:
    """The leader's state of all replicas of one partition in one leader epoch.

    :param replicas: all replicas, including the leader. The ISR is always in this order.
    :param isr: the ISR in the metadata store.
    :param log_end_offset: the leader's log end offset at the start of its epoch, which is the first offset of the
        epoch.
    :param high_watermark: the high watermark that this broker knew at the start of its epoch.

    >>> replicas = RemoteReplicas(1, 0, (1, 2), (1, 2), log_end_offset=0, high_watermark=0, now_s=0.0)
    >>> replicas.high_watermark(log_end_offset=5)
    0
    >>> replicas.on_fetch(2, fetch_offset=3, log_end_offset=5, now_s=0.1, broker_epoch=-1)
    >>> replicas.high_watermark(log_end_offset=5)
    3
    >>> replicas.wanted_isr(10.2, 10.0, 5, is_eligible=lambda broker_id: True)
    (1,)
    """

    __slots__ = (
        "_broker_id",
        "_epoch_start_offset",
        "_followers",
        "_high_watermark",
        "_is_changing",
        "_isr",
        "_maximal_isr",
        "_replicas",
        "leader_epoch",
    )

    def __init__(
        self,
        broker_id: int,
        leader_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        log_end_offset: int,
        high_watermark: int,
        now_s: float,
    ) -> None:
        self.leader_epoch = leader_epoch
        self._broker_id = broker_id
        self._replicas = replicas
        self._epoch_start_offset = log_end_offset
        self._high_watermark = min(high_watermark, log_end_offset)
        self._is_changing = False
        self._isr = self._maximal_isr = isr
        followers = [each for each in dict.fromkeys((*replicas, *isr)) if each != broker_id]
        self._followers = {each: _Follower(now_s if each in isr else _NEVER_S) for each in followers}

    # -- follower state -----------------------------------------------------------------------------------

    def on_fetch(
        self, follower: int, fetch_offset: int, log_end_offset: int, now_s: float, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Record that a follower has all records below `fetch_offset`.

        The caller must have checked that the follower's last epoch agrees with the leader's log (KIP-595). If the logs
        have diverged, equal offsets do not mean equal records.

        If the follower now has all records that the leader had at the previous fetch, it was caught up at the time of
        the previous fetch. Followers of a busy leader never reach its log end offset, but lag by only one fetch.

        If an ISR member fetches below the high watermark, it has lost records, for example in a power failure. It is
        then out of sync immediately.

        :param log_end_offset: the leader's log end offset.
        :raises ApiError: UNKNOWN_LEADER_EPOCH (the broker is not a replica, or not yet), OFFSET_OUT_OF_RANGE (the fetch
            offset is outside the leader's log), STALE_BROKER_EPOCH (the fetch belongs to an earlier registration).
        """
        known = self._followers.get(follower)
        if known is None:
            message = f"broker {follower} is not a replica in leader epoch {self.leader_epoch}"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        if not 0 <= fetch_offset <= log_end_offset:
            message = f"broker {follower} fetches from offset {fetch_offset}, but the log ends at {log_end_offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        known.check_broker_epoch(broker_epoch)
        is_caught_up = known.on_fetch(fetch_offset, log_end_offset, now_s)
        if follower not in self._maximal_isr:
            known.holds_back = is_caught_up or known.holds_back
        elif fetch_offset < self._high_watermark:
            known.caught_up_s = _NEVER_S

    def forget(self, follower: int) -> None:
        """Reset the state of a follower that may have lost records.

        The follower must fetch again before it can join the ISR.
        """
        ended_broker_epochs = self._followers[follower].ended_broker_epochs
        known = self._followers[follower] = _Follower(_NEVER_S)
        known.earlier_broker_epochs = ended_broker_epochs

    def on_log_start(self, follower: int, log_start_offset: int) -> None:
        """Record the log start offset of a follower's log."""
        if (known := self._followers.get(follower)) is not None:
            known.log_start_offset = log_start_offset

    def least_log_start(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of all replicas that may become leader, or -1 if one of the offsets is
        unknown.

        This includes followers that are about to join the ISR, as for the high watermark. Otherwise, if records are
        deleted continuously, such a follower could never reach the leader's log start offset.

        :param log_start_offset: the leader's log start offset.
        """
        followers = [
            known.log_start_offset
            for each, known in self._followers.items()
            if known.holds_back or each in self._maximal_isr
        ]
        return min(log_start_offset, *followers) if followers else log_start_offset

    def log_end_offset_of(self, follower: int) -> int:
        """Return a follower's log end offset, or -1 if the follower has not fetched in this leader epoch."""
        known = self._followers.get(follower)
        return NO_OFFSET if known is None else known.log_end_offset

    def least_log_end(self) -> int | None:
        """Return the lowest log end offset of all followers that have fetched, or None if no follower has fetched.

        Any thread may call this method.
        """
        ends = [each.log_end_offset for each in self._followers.copy().values()]
        return min((end for end in ends if end != NO_OFFSET), default=None)

    def broker_epoch_of(self, follower: int) -> int:
        """Return the broker epoch of a follower's fetches, or -1.

        A follower with an outdated broker epoch must not join the ISR.
        """
        known = self._followers.get(follower)
        return NO_BROKER_EPOCH if known is None else known.broker_epoch

    def caught_up_followers(self, offset: int) -> tuple[int, ...]:
        """Return the in-sync followers that have all records below `offset`.

        If `offset` is the leader's log end offset, such a follower can become leader without losing any records,
        including acks=1 records.
        """
        return tuple(each for each in self._isr if each != self._broker_id and self.log_end_offset_of(each) >= offset)

    # -- the high watermark --------------------------------------------------------------------------------------

    def high_watermark(self, log_end_offset: int) -> int:
        """Return the high watermark: the offset below which the ISR members and followers about to join have all
        records.

        It never decreases.

        While an ISR change is pending, the members of both the old and the new ISR are included, because either may be
        in effect (the *maximal ISR* in KIP-497). The high watermark does not rise before each included follower has
        fetched in this epoch.

        A follower outside the ISR that has caught up is also included, until it joins or falls behind. Otherwise, if a
        busy leader were the only ISR member, the ISR could not grow. The high watermark would be the leader's log end
        offset, which no follower reaches.

        :param log_end_offset: the leader's log end offset.
        """
        lowest = log_end_offset
        for broker_id, follower in self._followers.items():
            if follower.log_end_offset < lowest and (follower.holds_back or broker_id in self._maximal_isr):
                lowest = follower.log_end_offset
        self._high_watermark = max(self._high_watermark, lowest)
        return self._high_watermark

    @property
    def knows_high_watermark(self) -> bool:
        """True if the high watermark has reached the leader's log end offset at the start of its epoch.

        Until then, an earlier leader may have returned a higher high watermark to clients (KIP-207:
        OFFSET_NOT_AVAILABLE).
        """
        return self._high_watermark >= self._epoch_start_offset

    # -- the ISR -------------------------------------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...]:
        """The current ISR, which is the latest ISR that is known to be in the metadata store."""
        return self._isr

    @property
    def lagging(self) -> tuple[int, ...]:
        """The replicas that are not in the ISR."""
        return tuple(each for each in self._replicas if each not in self._isr)

    @property
    def is_changing(self) -> bool:
        """True if an ISR change has been sent to the metadata store and its outcome is not known yet."""
        return self._is_changing

    def is_in_sync(self, broker_id: int) -> bool:
        """Return whether a replica is in the current ISR."""
        return broker_id in self._isr

    def can_acknowledge(self, min_insync_replicas: int) -> bool:
        """Return whether the ISR is large enough for acks=all.

        The leader checks this before an append, and again when the high watermark has passed the appended records.
        Pending ISR changes are not considered, because a new member may not be in the ISR yet.
        """
        return len(self._isr) >= min_insync_replicas

    def wanted_isr(
        self,
        now_s: float,
        lag_time_max_s: float,
        log_end_offset: int,
        is_eligible: Callable[[int], bool],
        log_start_offset: int = 0,
    ) -> tuple[int, ...] | None:
        """Return the ISR to propose, or None if the current ISR is correct or a change is pending.

        A member stays in the ISR if it is eligible and has caught up within the last `lag_time_max_s`. So the leader
        stops waiting for a follower when its broker is no longer registered, or shuts down.

        A follower joins the ISR if it meets the same conditions, and additionally:

        - it has all records below the high watermark and all records of earlier epochs. The previous leader may have
          acknowledged more records than this leader knows;
        - the log start offset that it has reported is not below the leader's. Otherwise, deleted records could reappear
          if it became leader after a power failure (KIP-107).

        This method must be called periodically, and when a broker joins or leaves the cluster. If a follower outside
        the ISR had caught up and then stopped fetching, the high watermark no longer waits for it after this call.

        :param is_eligible: returns whether a broker is alive, is not shutting down, and still has the broker epoch of
            its fetches (`broker_epoch_of`).
        :param log_start_offset: the leader's log start offset.
        """
        if self._is_changing:
            return None
        followers = {each: known for each, known in self._followers.items() if is_eligible(each)}
        near = {each for each, known in followers.items() if now_s - known.caught_up_s <= lag_time_max_s}
        for each, known in self._followers.items():
            known.holds_back = known.holds_back and each in near
        eligible = (self._broker_id, *followers)
        isr = tuple(
            each
            for each in self._replicas
            if each in eligible and self._belongs(each, each in near, log_start_offset, log_end_offset)
        )
        return None if set(isr) == set(self._isr) else isr

    def _belongs(self, broker_id: int, is_near: bool, log_start_offset: int, log_end_offset: int) -> bool:
        if broker_id == self._broker_id:
            return True
        follower = self._followers[broker_id]
        if broker_id in self._isr:
            return is_near or follower.log_end_offset == log_end_offset
        if max(follower.log_start_offset, 0) < log_start_offset:
            return False
        return is_near and follower.log_end_offset >= max(self._high_watermark, self._epoch_start_offset)

    def set_replicas(self, replicas: tuple[int, ...]) -> None:
        """Apply a new list of replicas. A removed replica is still considered while it is, or may be, in the ISR."""
        self._replicas = replicas
        for broker_id in replicas:
            if broker_id != self._broker_id and broker_id not in self._followers:
                self._followers[broker_id] = _Follower(_NEVER_S)
        for broker_id in self._followers.keys() - {*replicas, *self._maximal_isr}:
            del self._followers[broker_id]

    @property
    def replicas(self) -> tuple[int, ...]:
        """All replicas of the partition, including the leader."""
        return self._replicas

    def begin_change(self, isr: tuple[int, ...]) -> None:
        """Record that `isr` may be in effect from now on.

        The caller must call this method before it writes the change.
        """
        self._is_changing = True
        self._maximal_isr = (*self._isr, *(each for each in isr if each not in self._isr))

    def adopt(self, isr: tuple[int, ...]) -> None:
        """Apply the ISR from the metadata store, which may be the proposed ISR or a different one.

        Only this method ends a pending change. After a version conflict or a lost response, the metadata store may
        contain the proposed ISR. So the high watermark considers the members of both ISRs until the caller has read the
        state again.
        """
        for broker_id in isr:
            if broker_id != self._broker_id and broker_id not in self._followers:
                self._followers[broker_id] = _Follower(_NEVER_S)
        for follower in self._followers.values():
            follower.holds_back = False
        self._is_changing = False
        self._isr = self._maximal_isr = isr
