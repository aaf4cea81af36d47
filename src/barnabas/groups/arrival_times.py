"""The arrival times of a partition's records, known from a bounded number of looks at its end offset. Pure."""

from __future__ import annotations

from array import array

POINTS_MAX = 32
"""The looks that are kept of a partition; 16 bytes each."""


class ArrivalTimes:
    """The looks at the end of one log. One thread notes them; any thread may ask.

    When there are too many looks, one goes that has others near it, by the measure of its age. So recent times are
    known to within seconds, and times of days ago to within hours.

    >>> arrivals = ArrivalTimes()
    >>> for now_s, end_offset in (0.0, 100), (10.0, 100), (20.0, 200), (30.0, 200):
    ...     arrivals.note(now_s, end_offset)
    >>> [arrivals.age_s(offset, now_s=30.0) for offset in (0, 100, 150, 200)]
    [30.0, 20.0, 15.0, 0.0]
    """

    __slots__ = ("_points",)

    def __init__(self) -> None:
        # Times and end offsets in turn: one array can be copied at one moment.
        self._points = array("d")

    def note(self, now_s: float, end_offset: int) -> None:
        """Note a look.

        :param now_s: monotonic seconds.
        """
        points = self._points
        while points and points[-1] > end_offset:  # the log was truncated
            del points[-2:]
        if len(points) >= 4 and points[-1] == points[-3] == end_offset:
            points[-2] = now_s  # the end of a stretch without records
            return
        points.extend((now_s, end_offset))
        if len(points) > 2 * POINTS_MAX:
            self._drop_one(now_s)

    def age_s(self, offset: int, now_s: float) -> float | None:
        """Return how long ago the record at an offset arrived; 0 if there is no record yet, None without looks.

        The age of a record from before the first look is that of the first look.
        """
        points = self._points[:]
        if not points:
            return None
        later_s = now_s
        for at in range(len(points) - 2, -1, -2):
            time_s, end_offset = points[at], points[at + 1]
            if end_offset <= offset:
                if at + 2 == len(points):
                    return 0.0
                # Records count as if they had arrived evenly between two looks.
                share = (offset - end_offset) / (points[at + 3] - end_offset)
                return now_s - (time_s + share * (later_s - time_s))
            later_s = time_s
        return now_s - points[0]

    def _drop_one(self, now_s: float) -> None:
        points = self._points

        def gap(at: int) -> float:
            return (points[at + 2] - points[at - 2]) / (now_s - points[at] + 1.0)

        at = min(range(2, len(points) - 2, 2), key=gap)
        del points[at : at + 2]
