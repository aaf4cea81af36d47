"""InitProducerId, versions 0 to 6: assign a producer id to an idempotent producer (KIP-98).

As in Kafka, a producer without a transactional id always gets a new producer id, even if the request contains its
current id (version 3, KIP-360). Transactions are not supported. Requests with a transactional id get the error that all
clients treat as fatal (see FindCoordinator).
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.producer_ids import ProducerIds
from barnabas.errors import CoordinationError, ErrorCode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@serves(InitProducerIdRequest)
async def init_producer_id(
    producer_ids: ProducerIds, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    """Assign the next producer id."""
    if request.transactional_id is not None:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=refused, producer_epoch=-1)
    try:
        producer_id = await producer_ids.next()
    except CoordinationError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
