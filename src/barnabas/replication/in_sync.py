"""What the leader of a partition knows of its followers: who is in sync, and how far the high watermark may go.

There is one `RemoteReplicas` for each partition that a broker leads and each epoch in which it does: made when the
epoch begins, thrown away when it ends. It decides, and the caller acts. The state in the tree is changed by
compare-and-set; this object is told before a change is sent (`begin_change`), and when its outcome is known.

Invariants: the high watermark never goes back, and every replica that is in the ISR, or that a change under way may
have brought in, has had all records below it. One that lost some of them, with its machine's memory, loses its place.

The rules are those of Kafka's `Partition` and `Replica`, with KIP-497 (which replicas count while the ISR changes),
KIP-903 (a follower that started again) and KIP-207 (a new leader that does not know the high watermark yet).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_OFFSET

NO_BROKER_EPOCH = -1
"""The broker epoch in a fetch of a follower that names none; it is not compared."""

EARLIER_EPOCHS_KEPT = 16
"""How many epochs of a follower's earlier registrations are refused. Epochs are random, so no order tells the older."""

_NEVER_S = float("-inf")


class _Follower:
    """One follower, as its fetches tell."""

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
        """The latest time of which is known that the follower had all that the leader had then."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.earlier_broker_epochs: tuple[int, ...] = ()
        self.holds_back = False
        """Whether the high watermark waits for it though it is not in sync, because it is about to be."""
        self.fetched_s = _NEVER_S
        self.leader_end_offset = NO_OFFSET
        """Where the leader's log ended at `fetched_s`, the follower's latest fetch."""

    def check_broker_epoch(self, broker_epoch: int) -> None:
        """Refuse a fetch from before the follower's latest start; forget earlier fetches if this is the first after it.

        :raises ApiError: STALE_BROKER_EPOCH.
        """
        if broker_epoch in (self.broker_epoch, NO_BROKER_EPOCH):
            return
        if broker_epoch in self.earlier_broker_epochs:
            message = "the broker epoch is of an earlier registration; the broker has registered again"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, message)
        self.earlier_broker_epochs = self.ended_broker_epochs
        self.broker_epoch = broker_epoch
        self.fetched_s = _NEVER_S
        self.leader_end_offset = NO_OFFSET

    @property
    def ended_broker_epochs(self) -> tuple[int, ...]:
        """The epochs that have ended if the present one has."""
        if self.broker_epoch == NO_BROKER_EPOCH:
            return self.earlier_broker_epochs
        return (*self.earlier_broker_epochs, self.broker_epoch)[-EARLIER_EPOCHS_KEPT:]

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_s: float) -> bool:
        """Note a fetch; return whether it shows that the follower had caught up, now or at its fetch before."""
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
    """The replicas of one partition, as its leader sees them within one epoch.

    :param replicas: all of them, the leader too; the ISR is always in their order.
    :param isr: as the state in the tree has it.
    :param log_end_offset: of the leader when its epoch began: the first offset of the epoch.
    :param high_watermark: as far as this broker knew it when its epoch began.

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

    # -- what followers have -----------------------------------------------------------------------------------

    def on_fetch(
        self, follower: int, fetch_offset: int, log_end_offset: int, now_s: float, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Note that a follower has all records below `fetch_offset`.

        To be called only once its last epoch was found to agree with the leader's log (KIP-595): what lies beyond
        the point where two logs diverge is not the same records.

        It counts as caught up with its previous fetch if it has now what the leader had then: a follower of a busy
        leader is never at the leader's end, and yet behind by one fetch only.

        A member of the ISR that fetches below the high watermark has lost records, with its machine's memory or its
        disk: it is out of sync at once, whatever it had a moment ago.

        :param log_end_offset: of the leader.
        :raises ApiError: UNKNOWN_LEADER_EPOCH (no replica; perhaps it is about to be one), OFFSET_OUT_OF_RANGE,
            STALE_BROKER_EPOCH.
        """
        known = self._followers.get(follower)
        if known is None:
            message = f"broker {follower} is not a replica in leader epoch {self.leader_epoch}"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        if not 0 <= fetch_offset <= log_end_offset:
            message = f"a follower fetches from {fetch_offset}, the log ends at {log_end_offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        known.check_broker_epoch(broker_epoch)
        is_caught_up = known.on_fetch(fetch_offset, log_end_offset, now_s)
        if follower not in self._maximal_isr:
            known.holds_back = is_caught_up or known.holds_back
        elif fetch_offset < self._high_watermark:
            known.caught_up_s = _NEVER_S

    def forget(self, follower: int) -> None:
        """Have a follower fetch anew before it joins: it has ended the life in which it had what it told."""
        ended_broker_epochs = self._followers[follower].ended_broker_epochs
        known = self._followers[follower] = _Follower(_NEVER_S)
        known.earlier_broker_epochs = ended_broker_epochs

    def on_log_start(self, follower: int, log_start_offset: int) -> None:
        """Note where a follower's log begins."""
        if (known := self._followers.get(follower)) is not None:
            known.log_start_offset = log_start_offset

    def least_log_start(self, log_start_offset: int) -> int:
        """Return the offset before which no replica that may lead next has any record; -1 while that is not known.

        One that is about to join counts, as for the high watermark: where records are deleted all the time it would
        else never begin where the leader does, and so never join.

        :param log_start_offset: of the leader.
        """
        followers = [
            known.log_start_offset
            for each, known in self._followers.items()
            if known.holds_back or each in self._maximal_isr
        ]
        return min(log_start_offset, *followers) if followers else log_start_offset

    def log_end_offset_of(self, follower: int) -> int:
        """Return up to where a follower has the log, or -1 if it has not fetched in this epoch."""
        known = self._followers.get(follower)
        return NO_OFFSET if known is None else known.log_end_offset

    def least_log_end(self) -> int | None:
        """Return the end of the follower's log that ends first; None while none of them has fetched.

        Any thread may call it.
        """
        ends = [each.log_end_offset for each in self._followers.copy().values()]
        return min((end for end in ends if end != NO_OFFSET), default=None)

    def broker_epoch_of(self, follower: int) -> int:
        """Return the broker epoch of a follower's fetches, or -1: one of an earlier start must not join the ISR."""
        known = self._followers.get(follower)
        return NO_BROKER_EPOCH if known is None else known.broker_epoch

    def caught_up_followers(self, offset: int) -> tuple[int, ...]:
        """Return the in-sync followers that have all records below `offset`.

        To hand over to one that has all below the leader's end loses nothing, whatever the acks.
        """
        return tuple(each for each in self._isr if each != self._broker_id and self.log_end_offset_of(each) >= offset)

    # -- the high watermark --------------------------------------------------------------------------------------

    def high_watermark(self, log_end_offset: int) -> int:
        """Return the offset below which all replicas that count have all records; it never goes back.

        Those in the ISR count, and while it changes those of the wider set (KIP-497's *maximal ISR*): a member that
        is being taken in may be a member already, one that is being dropped may still be. One that has not
        fetched in this epoch holds the high watermark where it is.

        A follower outside that has caught up counts as well, until it joins or falls back. The ISR of a busy leader
        that is alone would else never grow: its high watermark is its own end, which no follower reaches.

        :param log_end_offset: of the leader.
        """
        lowest = log_end_offset
        for broker_id, follower in self._followers.items():
            if follower.log_end_offset < lowest and (follower.holds_back or broker_id in self._maximal_isr):
                lowest = follower.log_end_offset
        self._high_watermark = max(self._high_watermark, lowest)
        return self._high_watermark

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark has reached all that the leader had when its epoch began.

        Until then an earlier leader may have told clients a greater one (KIP-207: OFFSET_NOT_AVAILABLE).
        """
        return self._high_watermark >= self._epoch_start_offset

    # -- the ISR -------------------------------------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR in force: the last one that is known to stand in the tree."""
        return self._isr

    @property
    def lagging(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        return tuple(each for each in self._replicas if each not in self._isr)

    @property
    def is_changing(self) -> bool:
        """Whether a change of the ISR is under way."""
        return self._is_changing

    def is_in_sync(self, broker_id: int) -> bool:
        """Tell whether a replica is in the ISR in force."""
        return broker_id in self._isr

    def can_acknowledge(self, min_insync_replicas: int) -> bool:
        """Tell whether acks=all is possible: asked before the append, and again once the high watermark has passed it.

        A change under way does not count: a member that is being taken in may not be one yet.
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
        """Return the ISR to propose, or None if the one in force is right or a change is under way.

        A member stays while it is eligible, and is at the leader's end or was within the last `lag_time_max_s`. So one
        that dies is waited for no longer than its death takes to be known, and one that shuts down not at all.

        A follower joins under the same condition, once it has all below the high watermark and all from before this
        epoch: of that the leader before may have acknowledged more than this one knows. And once it has told that its
        log begins no earlier than the leader's: where that were in its memory only, a loss of power and it as the next
        leader would bring back what was deleted (KIP-107).

        To be called often, and whenever a broker comes or goes: it is also what ends the high watermark's wait for a
        follower that had caught up and then fell silent.

        :param is_eligible: whether a broker is alive, not shutting down, and in the run that its fetches came from
            (`broker_epoch_of`).
        :param log_start_offset: of the leader.
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
        """Take over that other brokers hold replicas now. One that does no longer counts as long as it is in sync, or
        may be."""
        self._replicas = replicas
        for broker_id in replicas:
            if broker_id != self._broker_id and broker_id not in self._followers:
                self._followers[broker_id] = _Follower(_NEVER_S)
        for broker_id in self._followers.keys() - {*replicas, *self._maximal_isr}:
            del self._followers[broker_id]

    @property
    def replicas(self) -> tuple[int, ...]:
        """All replicas, as they were told last."""
        return self._replicas

    def begin_change(self, isr: tuple[int, ...]) -> None:
        """Note, before the change is sent, that `isr` may be in force from now on."""
        self._is_changing = True
        self._maximal_isr = (*self._isr, *(each for each in isr if each not in self._isr))

    def adopt(self, isr: tuple[int, ...]) -> None:
        """Take over the ISR that the tree has, in a state of this epoch: what was proposed, or what was read instead.

        Nothing else ends a change. After a bad version or a lost answer the tree may have what was proposed, and a
        high watermark without its new member would promise what that member lacks: both sets count until the state was
        read again.
        """
        for broker_id in isr:
            if broker_id != self._broker_id and broker_id not in self._followers:
                self._followers[broker_id] = _Follower(_NEVER_S)
        for follower in self._followers.values():
            follower.holds_back = False
        self._is_changing = False
        self._isr = self._maximal_isr = isr
