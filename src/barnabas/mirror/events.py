"""What a mirror says while it runs: an event for each thing that people or programs want to know, told once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Event = Mapping[str, object]
Tell = Callable[[Event], None]


class Told:
    """Tells of a state when it begins and when it ends, not while it lasts.

    >>> events = []
    >>> told = Told(events.append)
    >>> told.state("clicks", "refused", "it is a circle"); told.state("clicks", "refused", "it is a circle")
    >>> told.over("clicks"); told.over("clicks")
    >>> events
    [{'about': 'clicks', 'event': 'refused', 'reason': 'it is a circle'}, {'about': 'clicks', 'event': 'well again'}]
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._states: dict[str, tuple[str, str]] = {}
        self._left_out: set[str] = set()

    def once(self, about: str, event: str, **more: object) -> None:
        """Tell of something that happened."""
        self._tell({"about": about, "event": event, **more})

    def state(self, about: str, event: str, reason: str) -> None:
        """Tell of a state, unless it is told already."""
        if self._states.get(about) != (event, reason):
            self._states[about] = (event, reason)
            self._tell({"about": about, "event": event, "reason": reason})

    def left_out(self, about: str, reason: str) -> None:
        """Tell once that something is left out, which is no trouble."""
        if about not in self._left_out:
            self._left_out.add(about)
            self.once(about, "left out", reason=reason)

    def over(self, about: str) -> None:
        """What was told has ended."""
        if self._states.pop(about, None) is not None:
            self._tell({"about": about, "event": "well again"})

    def forget(self, about: str) -> None:
        """There is nothing any more that could be well or not."""
        self._states.pop(about, None)

    @property
    def standing(self) -> dict[str, str]:
        """What lasts, and why."""
        return {about: reason for about, (_, reason) in self._states.items()}
