"""ElectLeaders, versions 0 to 2: preferred or unclean leader elections (KIP-460).

Clients may send ElectLeaders to any broker, which forwards the request to other brokers if necessary
(`barnabas.broker.requested_elections`).
"""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.requested_elections import RequestedElections
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.elect_leaders import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@serves(ElectLeadersRequest)
async def elect_leaders(
    elections: RequestedElections, scheduler: CooperativeScheduler, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse:
    """Elect leaders on all brokers.

    If the request is for all partitions, the response omits partitions that need no election.
    """
    if request.election_type not in {PREFERRED_ELECTION, UNCLEAN_ELECTION}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    if request.topic_partitions is not None:
        return await _response(
            scheduler, await elections.elect(await _asked(scheduler, request), request.election_type)
        )
    outcomes = await elections.elect(elections.all(), request.election_type)
    return await _response(
        scheduler,
        {
            where: error
            for where, error in outcomes.items()
            if not (isinstance(error, ApiError) and error.code is ErrorCode.ELECTION_NOT_NEEDED)
        },
    )


@serves(ElectLeadersRequest)
async def elect_leaders_here(
    elections: RequestedElections, scheduler: CooperativeScheduler, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse:
    """Run elections on this broker, for another broker that has forwarded a request."""
    return await _response(
        scheduler, await elections.elect_here(await _asked(scheduler, request), request.election_type)
    )


async def _asked(scheduler: CooperativeScheduler, request: ElectLeadersRequest) -> list[TopicPartition]:
    asked = (TopicPartition(each.topic, n) for each in request.topic_partitions or [] for n in each.partitions)
    return list({where: None async for where in scheduler.each(asked)})


async def _response(
    scheduler: CooperativeScheduler, outcomes: dict[TopicPartition, ApiError | None]
) -> ElectLeadersResponse:
    results: dict[str, list[PartitionResult]] = {}
    async for where, error in scheduler.each(sorted(outcomes.items(), key=lambda each: each[0])):
        result: BarnabasError | None = error
        results.setdefault(where.topic, []).append(
            PartitionResult(
                partition_id=where.partition, error_code=error_code(result), error_message=error_message(result)
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partitions) for name, partitions in results.items()
        ]
    )
