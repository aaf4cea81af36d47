"""A consumer whose position lies in records that a new leader does not have (KIP-320)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.client.offset_requests import end_offsets_for_epochs
from barnabas.errors import ApiError, DisconnectedError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import stamp
from tests.support.consumer_core import TOPIC, Scene, make_batch, places

HERE = TopicPartition(TOPIC, 0)


def make_epoch_batch(base_offset, count, epoch):
    batch = bytearray(make_batch(0, base_offset, count))
    stamp(batch, 0, base_offset, epoch)
    return bytes(batch)


class Reader:
    """A consumer of one partition that has fetched ten records of leader epoch 1, and handed out some."""

    def __init__(self, policy="latest", handed_out=10):
        self.scene = Scene(partitions=1, auto_offset_reset=policy)
        self.core = self.scene.core
        self.core.assign([HERE])
        self.scene.on_metadata()
        self.scene.place_all()
        self.answer(make_epoch_batch(0, 10, 1))
        self.poll(handed_out)

    @property
    def state(self):
        return self.core.state.subscription.state(HERE)

    def poll(self, records_max=500):
        call = self.scene.settle(self.scene.poll(records_max=records_max))
        if call.error:
            raise call.error
        return places(call.result or ())

    def answer(self, records=None, error=0):
        fetch = self.scene.fetch()
        assert fetch is not None
        part = PartitionData(partition_index=0, error_code=error, high_watermark=30, records=records)
        response = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[part])])
        self.core.state.fetcher.on_response(fetch, response)
        self.core.state.notify_change()

    def settle(self, end_offset):
        ((state, (version, epoch)),) = self.core.state.unvalidated_positions().items()
        self.core.state.on_position_validated(state, version, end_offset)
        return epoch

    @property
    def asks_for(self):
        fetch = self.scene.fetch()
        assert fetch is not None
        self.core.state.fetcher.on_failure(fetch)
        return fetch.request.topics[0].partitions[0].fetch_offset


def test_batch_of_a_new_leader_is_not_handed_out_before_the_position_is_confirmed():
    reader = Reader()
    reader.answer(make_epoch_batch(10, 3, 2))
    assert reader.core.state.fetcher.lost_positions
    assert reader.scene.fetch() is None
    assert reader.settle(10) == 1
    reader.answer(make_epoch_batch(10, 3, 2))
    assert reader.poll() == [(0, 10), (0, 11), (0, 12)]
    reader.answer(make_epoch_batch(13, 1, 2))
    assert reader.poll() == [(0, 13)], "the same leader is not asked again"


@pytest.mark.parametrize("is_out_of_range", [True, False])
def test_consumer_goes_back_to_where_the_new_leader_truncated_the_log(is_out_of_range):
    reader = Reader()
    if is_out_of_range:
        reader.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    else:
        reader.answer(make_epoch_batch(10, 3, 2))
    reader.settle(6)
    assert reader.asks_for == 6
    reader.answer(make_epoch_batch(6, 2, 2))
    assert reader.poll() == [(0, 6), (0, 7)]


def test_records_at_hand_that_the_new_leader_does_not_have_are_not_handed_out():
    reader = Reader(handed_out=4)
    reader.answer(make_epoch_batch(10, 3, 2))
    reader.settle(6)
    assert reader.asks_for == 4, "what was not handed out yet is fetched again"
    assert reader.state.done <= 4
    reader.answer(make_epoch_batch(4, 2, 1))
    assert reader.poll() == [(0, 4), (0, 5)]


def test_truncation_is_an_error_where_the_policy_is_none():
    reader = Reader(policy="none")
    reader.answer(make_epoch_batch(10, 3, 2))
    reader.settle(6)
    with pytest.raises(ApiError, match="truncated the log to offset 6, before the position 10"):
        reader.poll()
    reader.core.seek(HERE, 6)
    assert reader.asks_for == 6


@pytest.mark.parametrize("end_offset", [10, None])
def test_offset_out_of_range_without_truncation_is_reset_by_the_policy(end_offset):
    reader = Reader()
    reader.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    reader.settle(end_offset)
    assert reader.state.reset == "latest"
    assert reader.core.state.missing_positions()


def test_seek_ends_the_doubt():
    reader = Reader()
    reader.answer(make_epoch_batch(10, 3, 2))
    reader.core.seek(HERE, 2)
    assert not reader.core.state.unvalidated_positions()
    assert reader.asks_for == 2


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_leader_that_has_changed_is_asked_again_and_one_that_refuses_is_not(code):
    class Cluster:
        view = SimpleNamespace(leader=lambda _tp: 1)
        refreshes = 0

        def use_topics(self, topics):
            assert topics == {TOPIC}

        async def send(self, _node, request):
            assert request.topics[0].partitions[0].leader_epoch == 4
            part = SimpleNamespace(partition=0, error_code=code, end_offset=-1)
            return SimpleNamespace(topics=[SimpleNamespace(topic=TOPIC, partitions=[part])])

        def request_refresh(self, *, is_stale):
            self.refreshes += is_stale

    cluster = Cluster()
    if code.retriable:
        with pytest.raises(ApiError):
            asyncio.run(end_offsets_for_epochs(cluster, {HERE: 4}))
        assert cluster.refreshes == 1
    else:
        assert asyncio.run(end_offsets_for_epochs(cluster, {HERE: 4})) == {}


def test_leader_that_is_gone_makes_the_client_look_for_the_new_one():
    class Cluster:
        view = SimpleNamespace(leader=lambda _tp: 1)
        refreshes = 0

        def use_topics(self, topics):
            assert topics == {TOPIC}

        async def send(self, _node, _request):
            raise DisconnectedError("Connection refused")

        def request_refresh(self, *, is_stale):
            self.refreshes += is_stale

    cluster = Cluster()
    with pytest.raises(DisconnectedError):
        asyncio.run(end_offsets_for_epochs(cluster, {HERE: 4}))
    assert cluster.refreshes == 1
