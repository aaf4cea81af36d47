"""The roles of a table's columns in reports. The user names the column of a role, or the first column with a usual name
gets it. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.errors import ConfigurationError


class Role(enum.StrEnum):
    """The role of a column in a report. The value is part of the option's name: `--item-column`."""

    TIME = "time"
    ITEM = "item"
    VISITOR = "visitor"
    SESSION = "session"
    ADDRESS = "address"
    TYPE = "type"
    ID = "id"
    IMPRESSION = "impression"
    FOLLOWS = "follows"


MEANING: Mapping[Role, str] = {
    Role.TIME: "the time of the event, a timestamp",
    Role.ITEM: "the item that was viewed or requested",
    Role.VISITOR: "the visitor who caused the event",
    Role.SESSION: "the session; without it, a long pause of a visitor ends a session",
    Role.ADDRESS: "the address that the event came from",
    Role.TYPE: "the kind of event, such as impression or click",
    Role.ID: "the id of the event",
    Role.IMPRESSION: "the id of the clicked impression",
    Role.FOLLOWS: "the member that the visitor starts to follow",
}
_ADDRESSES = ("address", "ip", "ip_address", "client_ip", "remote_addr", "remote_host", "client", "host")
_USUAL: Mapping[Role, Sequence[str]] = {
    Role.TIME: ("event_time", "timestamp"),
    Role.ITEM: ("item", "item_id", "product", "product_id", "article", "page", "path", "url", "dest", "destination"),
    # The address is a usual name too: access logs rarely contain a user, but always an address.
    Role.VISITOR: ("member", "member_id", "visitor", "visitor_id", "user_id", "userid", *_ADDRESSES, "user"),
    Role.SESSION: ("session", "session_id", "sessionid"),
    Role.ADDRESS: _ADDRESSES,
    Role.TYPE: ("type", "event_type", "kind", "event", "action"),
    Role.ID: ("id", "event_id"),
    Role.IMPRESSION: ("impression", "impression_id"),
    Role.FOLLOWS: ("follows", "followed", "followee", "followed_id"),
}


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a table, and the columns that the user has assigned to roles."""

    columns: Sequence[str]
    named: Mapping[Role, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, name in self.named.items():
            if name not in self.columns:
                raise ConfigurationError(
                    f"--{role}-column: there is no column {name!r}; the columns are {self._listed()}"
                )

    def find(self, role: Role) -> str | None:
        """Return the column that the user assigned to a role, else the first column with a usual name (ignoring case),
        else None.

        >>> Roles(["timestamp", "Path"]).find(Role.ITEM)
        'Path'
        """
        if role in self.named:
            return self.named[role]
        by_key = {name.lower(): name for name in self.columns}
        return next((by_key[name] for name in _USUAL[role] if name in by_key), None)

    def need(self, role: Role) -> str:
        """Return the column of a role.

        :raises ConfigurationError: The user assigned no column, and no column has a usual name.
        """
        found = self.find(role)
        if found is None:
            raise ConfigurationError(
                f"no column looks like {role} ({MEANING[role]}); name it with --{role}-column NAME. "
                f"The columns are {self._listed()}"
            )
        return found

    def _listed(self) -> str:
        return ", ".join(self.columns)
