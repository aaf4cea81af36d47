"""CreateAcls (key 30): add access control lists.

Version 1 adds the pattern type of a resource (KIP-290), version 2 is the first flexible version, version 3 allows users
as resources (KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class AclCreation:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = field(array(AclCreation))


@struct
class AclCreationResult:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AclCreationResult] = field(array(AclCreationResult))
