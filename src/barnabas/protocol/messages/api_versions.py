"""ApiVersions (key 18): the APIs that the broker supports, and their versions.

Version 3 is the first flexible version, and adds the name of the client's software (KIP-511) and features (KIP-584).
Version 4 allows a minimum feature version of 0.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT16, INT32, INT64, STRING, array, field, message, struct


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field(STRING, since=3, default="", ignorable=True)
    client_software_version: str = field(STRING, since=3, default="", ignorable=True)


@struct
class ApiVersion:
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class SupportedFeatureKey:
    name: str = field(STRING, since=3, default="")
    min_version: int = field(INT16, since=3, default=0)
    max_version: int = field(INT16, since=3, default=0)


@struct
class FinalizedFeatureKey:
    name: str = field(STRING, since=3, default="")
    max_version_level: int = field(INT16, since=3, default=0)
    min_version_level: int = field(INT16, since=3, default=0)


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), since=3, default_factory=list, ignorable=True, tag=0
    )
    finalized_features_epoch: int = field(INT64, since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), since=3, default_factory=list, ignorable=True, tag=2
    )
    zk_migration_ready: bool = field(BOOLEAN, since=3, default=False, ignorable=True, tag=3)
