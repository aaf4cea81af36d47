"""The principals that may do everything (`super.users`)."""

from __future__ import annotations

from barnabas.errors import AuthenticationError
from barnabas.security.principal import Principal, parse_principals


class SuperUsers:
    """The super users of a broker.

    :param setting: the value of `super.users`: principals separated by semicolons.
    :param restricts_users: True if only super users may see and change users, and change quotas.
    :raises ConfigurationError: an item is not a principal.
    """

    def __init__(self, setting: str, *, restricts_users: bool = True) -> None:
        self._principals = parse_principals(setting)
        self._restricts_users = restricts_users

    def __contains__(self, principal: object) -> bool:
        return principal in self._principals

    def check_broker(self, principal: Principal) -> None:
        """Check that a principal may act as a broker.

        :raises AuthenticationError: the principal is no super user.
        """
        if principal not in self:
            raise AuthenticationError(f"{principal} is not in super.users, and cannot act as a broker")

    def may_administer(self, principal: Principal) -> bool:
        """Return whether a principal may see and change users, and change quotas."""
        return principal in self or not self._restricts_users
