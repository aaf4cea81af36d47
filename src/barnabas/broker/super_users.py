"""The principals that may do everything (`super.users`)."""

from __future__ import annotations

from barnabas.errors import AuthenticationError
from barnabas.security.principal import Principal, parse_principals


class SuperUsers:
    """The super users of a broker.

    :param setting: the value of `super.users`: principals separated by semicolons.
    :param is_secured: True if the broker has a listener that authenticates its clients.
    :raises ConfigurationError: an item is not a principal.
    """

    def __init__(self, setting: str, *, is_secured: bool) -> None:
        self._principals = parse_principals(setting)
        self._is_secured = is_secured

    def __contains__(self, principal: object) -> bool:
        return principal in self._principals

    def check_broker(self, principal: Principal) -> None:
        """Check that a principal may act as a broker.

        :raises AuthenticationError: the principal is no super user.
        """
        if principal not in self:
            raise AuthenticationError(f"{principal} is not in super.users, and cannot act as a broker")

    def may_manage_users(self, principal: Principal) -> bool:
        """Return whether a principal may see and change the users: a super user, or anybody on an open broker."""
        return principal in self or not (self._is_secured or self._principals)
