"""The errors of refused requests: they name the missing permission, and the command that allows it.

Brokers return only an error code, such as TOPIC_AUTHORIZATION_FAILED. The client knows the operation that its request
needs.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode

KINDS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
}
"""The type of the resource, by the error code of a missing permission."""
UNKNOWN_PRINCIPAL = "User:NAME"


class Need(NamedTuple):
    """The operations that a request needs on a resource, in the words of `barnabas acl`.

    :ivar operations: one operation, or several, separated by commas.
    :ivar kind: the type of the resource; a cluster has no name.
    """

    operations: str
    kind: str
    name: str = ""

    @property
    def resource(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def with_permission(error: ApiError, principal: str | None, *needs: Need) -> ApiError:
    """Return the error of a refused request with the missing permission, and any other error as it is.

    :param principal: the principal of the client, or None if only the broker knows it.
    :param needs: what the request needs; the error code selects the resource.

    >>> refused = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, subject="t-0")
    >>> with_permission(refused, "User:a", Need("read", "topic", "t")).message
    't-0: User:a lacks READ on topic:t; an administrator allows it with: barnabas acl allow User:a read topic:t'
    """
    kind = KINDS.get(error.code)
    need = next((each for each in needs if each.kind == kind), None)
    if need is None or not _is_general(error):
        return error
    return ApiError(error.code, missing(principal, need), error.subject)


def missing(principal: str | None, need: Need) -> str:
    """Return the text about a missing permission."""
    who = principal or "the client"
    operations = need.operations.upper().replace("-", "_").replace(",", " or ")
    command = shlex.join(["barnabas", "acl", "allow", principal or UNKNOWN_PRINCIPAL, need.operations, need.resource])
    return f"{who} lacks {operations} on {need.resource}; an administrator allows it with: {command}"


def _is_general(error: ApiError) -> bool:
    """Return whether the reason of an error says no more than its code."""
    general = error.code.name.removesuffix("_EXCEPTION").replace("_", " ").lower()
    return not error.reason or re.sub(r"[\s.]+\Z", "", error.reason.lower()).endswith(general)
