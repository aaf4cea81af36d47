"""Which column of a table is what: the one that was named, else the first with a usual name. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.errors import ConfigurationError


class Role(enum.StrEnum):
    """What a report needs to know of an event. Its value is how an option calls it: `--item-column`."""

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
    Role.TIME: "when it happened, a timestamp",
    Role.ITEM: "what was seen or asked for",
    Role.VISITOR: "who did it",
    Role.SESSION: "in which session; else sessions are made of what a visitor does without a long pause",
    Role.ADDRESS: "where it came from",
    Role.TYPE: "what kind of event it is, such as impression or click",
    Role.ID: "the event's own name",
    Role.IMPRESSION: "which impression was clicked",
    Role.FOLLOWS: "whom the visitor follows from now on",
}
_ADDRESSES = ("address", "ip", "ip_address", "client_ip", "remote_addr", "remote_host", "client", "host")
_USUAL: Mapping[Role, Sequence[str]] = {
    Role.TIME: ("event_time", "timestamp"),
    Role.ITEM: ("item", "item_id", "product", "product_id", "article", "page", "path", "url", "dest", "destination"),
    # The user of an access log is nearly always unknown, the address never.
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
    """The columns of a table, and which were named for what."""

    columns: Sequence[str]
    named: Mapping[Role, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, name in self.named.items():
            if name not in self.columns:
                raise ConfigurationError(f"--{role}-column: there is no column {name!r}; there are {self._listed()}")

    def find(self, role: Role) -> str | None:
        """Return the column that was named, or the first with a usual name, whatever the case of its letters.

        >>> Roles(["timestamp", "Path"]).find(Role.ITEM)
        'Path'
        """
        if role in self.named:
            return self.named[role]
        by_key = {name.lower(): name for name in self.columns}
        return next((by_key[name] for name in _USUAL[role] if name in by_key), None)

    def need(self, role: Role) -> str:
        """Return the column.

        :raises ConfigurationError: none was named, and none has a usual name; the message lists those that there are.
        """
        found = self.find(role)
        if found is None:
            raise ConfigurationError(
                f"none of the columns looks like {role} ({MEANING[role]}); say which one is: --{role}-column NAME. "
                f"There are {self._listed()}"
            )
        return found

    def _listed(self) -> str:
        return ", ".join(self.columns)
