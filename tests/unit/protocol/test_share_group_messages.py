"""The messages of share groups (KIP-932) as bytes, encoded by the classes of Kafka's clients 4.4."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupTopic,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupOffsetsGroup,
    ShareGroupOffsetsPartition,
    ShareGroupOffsetsRequestGroup,
    ShareGroupOffsetsRequestTopic,
    ShareGroupOffsetsTopic,
)
from barnabas.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStatePartition,
    ReadStateRequestPartition,
    ReadStateRequestTopic,
    ReadStateTopic,
    StateBatch,
)
from barnabas.protocol.messages.share_group_describe import (
    DescribedShareGroup,
    DescribedShareGroupMember,
    ShareGroupAssignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupTopic,
)

ID = bytes(range(16))
ID_HEX = "000102030405060708090a0b0c0d0e0f"


def offsets(lag: int) -> DescribeShareGroupOffsetsResponse:
    partition = ShareGroupOffsetsPartition(
        partition_index=5, start_offset=258, leader_epoch=3, lag=lag, error_code=3, error_message="e"
    )
    topic = ShareGroupOffsetsTopic(topic_name="t", topic_id=ID, partitions=[partition])
    return DescribeShareGroupOffsetsResponse(
        groups=[ShareGroupOffsetsGroup(group_id="g", topics=[topic], error_code=0)]
    )


def consumer_group(member_type: int) -> ConsumerGroupDescribeResponse:
    topic = ConsumerGroupTopic(topic_id=ID, topic_name="t", partitions=[0, 5])
    member = DescribedConsumerGroupMember(
        member_id="m",
        instance_id="i",
        member_epoch=2,
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        assignment=ConsumerGroupAssignment(topic_partitions=[topic]),
        member_type=member_type,
    )
    group = DescribedConsumerGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=3,
        assignor_name="range",
        members=[member],
        authorized_operations=328,
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=1, groups=[group])


CONSUMER_GROUP_HEX = (
    "00000001 02 0000 00 0267 07537461626c65 00000004 00000003 0672616e6765"
    " 02 026d 0269 00 00000002 0263 0a2f31302e302e302e31 020274 04742e2a"
    " 02" + ID_HEX + "0274 03 00000000 00000005 00 00 01 00 {} 00 00000148 00 00"
)

MESSAGES = [
    (0, ConsumerGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=True), "03 0267 0268 01 00"),
    (0, consumer_group(-1), CONSUMER_GROUP_HEX.format("")),
    (1, consumer_group(1), CONSUMER_GROUP_HEX.format("01")),
    (1, ShareGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=True), "03 0267 0268 01 00"),
    (
        1,
        ShareGroupDescribeResponse(
            throttle_time_ms=1,
            groups=[
                DescribedShareGroup(
                    error_code=69,
                    error_message="none",
                    group_id="g",
                    group_state="Stable",
                    group_epoch=4,
                    assignment_epoch=3,
                    assignor_name="simple",
                    members=[
                        DescribedShareGroupMember(
                            member_id="m",
                            rack_id=None,
                            member_epoch=2,
                            client_id="c",
                            client_host="/10.0.0.1",
                            subscribed_topic_names=["t"],
                            assignment=ShareGroupAssignment(
                                topic_partitions=[ShareGroupTopic(topic_id=ID, topic_name="t", partitions=[0, 5])]
                            ),
                        )
                    ],
                    authorized_operations=328,
                )
            ],
        ),
        "00000001 02 0045 056e6f6e65 0267 07537461626c65 00000004 00000003 0773696d706c65"
        " 02 026d 00 00000002 0263 0a2f31302e302e302e31 020274 02" + ID_HEX + "0274 03 00000000 00000005 00 00 00"
        " 00000148 00 00",
    ),
    (
        1,
        DescribeShareGroupOffsetsRequest(
            groups=[
                ShareGroupOffsetsRequestGroup(group_id="g", topics=None),
                ShareGroupOffsetsRequestGroup(
                    group_id="h", topics=[ShareGroupOffsetsRequestTopic(topic_name="t", partitions=[2])]
                ),
            ]
        ),
        "03 0267 00 00 0268 02 0274 02 00000002 00 00 00",
    ),
    (
        0,
        offsets(-1),
        "00000000 02 0267 02 0274" + ID_HEX + "02 00000005 0000000000000102 00000003 0003 0265 00 00 0000 00 00 00",
    ),
    (
        1,
        offsets(7),
        "00000000 02 0267 02 0274" + ID_HEX + "02 00000005 0000000000000102 00000003 0000000000000007 0003 0265 00 00"
        " 0000 00 00 00",
    ),
    (
        0,
        ReadShareGroupStateRequest(
            group_id="g",
            topics=[
                ReadStateRequestTopic(topic_id=ID, partitions=[ReadStateRequestPartition(partition=5, leader_epoch=3)])
            ],
        ),
        "0267 02" + ID_HEX + "02 00000005 00000003 00 00 00",
    ),
    (
        0,
        ReadShareGroupStateResponse(
            results=[
                ReadStateTopic(
                    topic_id=ID,
                    partitions=[
                        ReadStatePartition(
                            partition=5,
                            error_code=0,
                            error_message=None,
                            state_epoch=1,
                            start_offset=258,
                            state_batches=[
                                StateBatch(first_offset=258, last_offset=260, delivery_state=2, delivery_count=4)
                            ],
                        )
                    ],
                )
            ]
        ),
        "02" + ID_HEX + "02 00000005 0000 00 00000001 0000000000000102 02 0000000000000102 0000000000000104 02 0004"
        " 00 00 00 00",
    ),
]


@pytest.mark.parametrize(("version", "message", "encoded"), MESSAGES, ids=lambda each: type(each).__name__)
def test_message_has_the_bytes_of_kafkas_clients(version: int, message: Any, encoded: str) -> None:
    wanted = bytes.fromhex(encoded)
    assert encode_bytes(message, version) == wanted
    assert decode(type(message), wanted, version) == message
