"""DeleteAcls (key 31): remove the access control lists that match filters.

Version 1 adds the pattern type of a resource (KIP-290), version 2 is the first flexible version, version 3 allows users
as resources (KIP-373).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(nullable(STRING))
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(nullable(STRING))
    host_filter: str | None = field(nullable(STRING))
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct
class DeleteAclsFilterResult:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
