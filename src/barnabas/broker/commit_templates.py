"""The template of commits: the same member commits the same partitions again and again, at other offsets.

Nearly all commits are such ones. After one was carried out in full, those that repeat it are recognised by their bytes,
and what does not change of their records and answers is there already. The handler of OffsetCommit checks again all
that may have changed: whether the member may commit, whether the topics are still the same. Where anything has changed,
or the offsets cannot be stored at once, it carries the request out in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.pipeline.call import Call
from barnabas.errors import ErrorCode
from barnabas.groups.records import OffsetRecord, encode_change, offset_value
from barnabas.groups.stored import Committed
from barnabas.model import TopicPartition
from barnabas.protocol.request_templates import RepeatedNumbers, same_answer
from barnabas.records.repeated_batch import RepeatedBatch

if TYPE_CHECKING:
    from barnabas.broker.group_shell import GroupShell
    from barnabas.broker.settings.dynamic import DynamicSettings
    from barnabas.broker.topic_lookup import Topic
    from barnabas.broker.topics import Topics
    from barnabas.clock import Clock
    from barnabas.net.server_connection import Frame
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

PARTITIONS_MAX = 32
TEXT_CHARACTERS_MAX = 1024
"""A commit of more partitions, or with longer names and metadata, is not remembered: the memory is kept as long as the
connection."""


class CommitTemplates:
    """Learns which commits connections repeat. Used from the event loop's thread only."""

    def __init__(self, topics: Topics, groups: GroupShell, settings: DynamicSettings, clock: Clock) -> None:
        self.topics = topics
        self.groups = groups
        self.settings = settings
        self.clock = clock

    def note(self, request: OffsetCommitRequest, response: OffsetCommitResponse, call: Call) -> None:
        """Note a commit that was carried out in full: all its offsets are stored."""
        templates = call.connection.templates
        learner = templates.frame
        if not isinstance(learner, LearntCommit):
            learner = templates.frame = LearntCommit()
        if learner.is_worth_learning() and _is_usual(request) and (topics := self._topics_of(request)) is not None:
            learner.template = CommitTemplate(self, topics, request, response, call)

    def _topics_of(self, request: OffsetCommitRequest) -> list[Topic] | None:
        """Return the topics that a request names; None if one has been deleted meanwhile."""
        found = [self.topics.get(each.name) for each in request.topics]
        topics = [topic for topic in found if topic is not None]
        return topics if len(topics) == len(found) else None


class LearntCommit:
    """The commit of one connection that was learnt last (`RecogniseFrame`).

    To learn one costs more than to carry it out. Where the last one was not repeated, twice as many commits as before
    are let go by until another is learnt.
    """

    __slots__ = ("_pause", "_to_let_go", "template")

    def __init__(self) -> None:
        self.template: CommitTemplate | None = None
        self._to_let_go = 0
        self._pause = 1

    def recognise(self, frame: Frame) -> RepeatedCommit | None:
        return None if self.template is None else self.template.recognise(frame)

    def is_worth_learning(self) -> bool:
        """Whether the next commit is to be learnt."""
        if self.template is not None and self.template.was_repeated:
            self._to_let_go, self._pause = 0, 1
        if self._to_let_go:
            self._to_let_go -= 1
            return False
        self._to_let_go = self._pause
        self._pause *= 2
        return True


class RepeatedCommit(NamedTuple):
    """A commit that repeats a learnt one at other offsets."""

    template: CommitTemplate
    correlation_id: int
    offsets: tuple[int, ...]

    def store_at_once(self) -> bytes | None:
        """Store the offsets and return the frame of the answer; None if that cannot be done now."""
        return self.template.store_at_once(self.correlation_id, self.offsets)

    def in_full(self) -> OffsetCommitRequest:
        """Return the request as it would have been decoded."""
        request, offsets = self.template.request, iter(self.offsets)
        return replace(
            request,
            topics=[
                replace(topic, partitions=[replace(each, committed_offset=next(offsets)) for each in topic.partitions])
                for topic in request.topics
            ],
        )


class CommitTemplate:
    """A commit that was carried out, and what does not change when it is repeated (`FrameTemplate`)."""

    __slots__ = (
        "_answer",
        "_batch",
        "_config",
        "_frames",
        "_group",
        "_notes",
        "_parts",
        "_places",
        "_topics",
        "client_id",
        "request",
        "served",
        "version",
        "was_repeated",
    )

    def __init__(
        self,
        parts: CommitTemplates,
        topics: Sequence[Topic],
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        call: Call,
    ) -> None:
        self.was_repeated = False
        self.request = request
        self.served, self.version, self.client_id = call.served, call.version, call.client_id
        self._parts = parts
        self._config = parts.settings.config
        self._group = (
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
        self._topics = topics
        self._places = [
            TopicPartition(topic.name, each.partition_index)
            for topic, asked in zip(topics, request.topics, strict=True)
            for each in asked.partitions
        ]
        self._notes = [
            (each.committed_metadata or "", each.committed_leader_epoch, topic.id)
            for topic, asked in zip(topics, request.topics, strict=True)
            for each in asked.partitions
        ]
        committed = self._committed([0] * len(self._places), 0)
        records = map(encode_change, self._changes(committed))
        self._batch = RepeatedBatch([(key, value or b"") for key, value in records])
        self._answer: Callable[[int], bytes] = same_answer(response, call.version)
        self._frames = RepeatedNumbers(_with_offset(request), call.version, call.client_id)

    def recognise(self, frame: Frame) -> RepeatedCommit | None:
        """Return the request of a frame that repeats this one."""
        found = self._frames.recognise(frame)
        return None if found is None else RepeatedCommit(self, *found)

    def store_at_once(self, correlation_id: int, offsets: Sequence[int]) -> bytes | None:
        """Store offsets and return the frame of the answer; None if that cannot be done now."""
        if not self._holds():
            return None
        shard = self._parts.groups.find_for_commit(*self._group)
        if isinstance(shard, ErrorCode):
            return None
        now_ms = self._parts.clock.time_ms()
        committed = self._committed(offsets, now_ms)
        batch = self._batch.with_values(now_ms, map(offset_value, committed))
        if not shard.log.write_at_once(batch, self._changes(committed)):
            return None
        self.was_repeated = True
        return self._answer(correlation_id)

    def _holds(self) -> bool:
        """Whether its partitions are those that they were, and its metadata would still be accepted."""
        if self._parts.settings.config is not self._config:
            return False
        get = self._parts.topics.get
        return all([get(topic.name) is topic for topic in self._topics])  # noqa: C419  nearly always one

    def _committed(self, offsets: Sequence[int], now_ms: int) -> list[Committed]:
        return [
            Committed(offset, metadata, leader_epoch, now_ms, topic_id)
            for (metadata, leader_epoch, topic_id), offset in zip(self._notes, offsets, strict=True)
        ]

    def _changes(self, committed: Sequence[Committed]) -> list[OffsetRecord]:
        group_id = self._group[0]
        return [OffsetRecord(group_id, where, each) for where, each in zip(self._places, committed, strict=True)]


def _is_usual(request: OffsetCommitRequest) -> bool:
    """Whether a commit is short, and names each of its partitions once."""
    texts = [request.group_id, request.member_id, request.group_instance_id or ""]
    places = []
    for topic in request.topics:
        places += [(topic.name, each.partition_index) for each in topic.partitions]
        texts += [topic.name, *(each.committed_metadata or "" for each in topic.partitions)]
    return 0 < len(places) == len(set(places)) <= PARTITIONS_MAX and sum(map(len, texts)) <= TEXT_CHARACTERS_MAX


def _with_offset(request: OffsetCommitRequest) -> Callable[[int], OffsetCommitRequest]:
    """Return what sets the offset of every partition of a request."""

    def with_offset(offset: int) -> OffsetCommitRequest:
        for topic in request.topics:
            for each in topic.partitions:
                each.committed_offset = offset
        return request

    return with_offset
