"""The ACLs of the cluster: their copy in the metadata image, and their changes in the metadata store.

A change is durable, and in force on this broker, when `create` or `delete` returns. Other brokers read the changed
nodes when their watch fires. Requests are checked by the ACLs in memory, so they do not need the metadata store. A
broker reads all ACLs again when it has a new session.

All calls of the metadata store run on a thread of their own, so they do not wait while the broker creates or deletes
large topics.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.coordination import acls
from barnabas.coordination.metadata_store import MetadataStore, WatchEvent
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, ErrorCode
from barnabas.log_lines import LogEvent, event
from barnabas.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern, ResourceType, checked_binding
from barnabas.security.authorizer import Acls, Authorizer
from barnabas.shielded import completed

AGAIN_S = 0.5
"""The pause before a failed read is retried, in seconds."""
PATTERNS_AT_ONCE = 32
"""The number of nodes that are changed before other work of the metadata store may run."""

log = logging.getLogger(__name__)


class ClusterAcls:
    """Reads and changes the ACLs. Used from the event loop's thread only.

    :param authorizer: decides by the current ACLs.
    :ivar are_in_force: False if the broker has no authorizer. It then reads and changes no ACLs.
    """

    def __init__(
        self,
        tree: MetadataStore,
        in_acl_thread: InMetadataThread,
        metadata: MetadataCache,
        authorizer: Authorizer,
        scheduler: CooperativeScheduler,
        *,
        are_in_force: bool,
    ) -> None:
        self._tree = tree
        self._in_acl_thread = in_acl_thread
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._metadata = metadata
        self._authorizer = authorizer
        self._scheduler = scheduler
        self.are_in_force = are_in_force
        self._applied = 0
        # The next three belong to the thread for ACLs, which counts the states so that none replaces a newer one.
        self._known = metadata.image.acls
        self._number = 0
        self._seen: acls.Changes | None = None

    async def load(self) -> None:
        """Read all ACLs.

        :raises CoordinationError: the metadata store is unreachable.
        """
        if not self.are_in_force:
            return
        self._apply(*await self._in_acl_thread(self._read_all))

    async def run(self) -> None:
        """Read the changes of other brokers, until cancelled."""
        last_error = ""
        read = self.read_changes
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await read()
            except BarnabasError as error:
                if str(error) != last_error:
                    extra = event(LogEvent.TREE_UNREACHABLE)
                    log.warning("cannot read changed ACLs from the metadata store: %s; retrying", error, extra=extra)
                    last_error = str(error)
                read = self.load
            except Exception:
                log.exception("cannot apply changed ACLs; reading all ACLs again")
                read = self.load
            else:
                last_error, read = "", self.read_changes
                continue
            await asyncio.sleep(AGAIN_S)
            self._is_due.set()

    async def read_changes(self) -> None:
        """Read the ACLs that have changed since the last read.

        :raises CoordinationError: the metadata store is unreachable.
        """
        changed = await self._in_acl_thread(self._read_changes)
        if changed is not None:
            self._apply(*changed)

    def find(self, acl_filter: AclFilter) -> Steps[list[AclBinding]]:
        """Return the ACLs that match a filter. Subjects match only a filter for subjects."""
        known = self._metadata.image.acls
        found: list[AclBinding] = []
        for number, pattern in enumerate(known.candidates(acl_filter)):
            if is_pause_due(number):
                yield
            if _includes(acl_filter, pattern):
                bindings = (AclBinding(pattern, entry) for entry in known.entries(pattern))
                found += filter(acl_filter.matches, bindings)
        return found

    async def create(self, wanted: Sequence[AclBinding]) -> list[ApiError | None]:
        """Create ACLs. Return an error, or None, for each of them.

        :raises CoordinationError: the metadata store is unreachable. Some ACLs may have been created.
        """
        errors: list[ApiError | None] = [None] * len(wanted)
        by_pattern: dict[ResourcePattern, list[int]] = {}
        async for number, binding in self._scheduler.each(enumerate(wanted)):
            try:
                checked_binding(binding)
            except ConfigurationError as error:
                errors[number] = ApiError(ErrorCode.INVALID_REQUEST, str(error))
            else:
                by_pattern.setdefault(binding.pattern, []).append(number)
        for patterns in _portions(list(by_pattern)):
            added = {each: [wanted[number].entry for number in by_pattern[each]] for each in patterns}
            refused = await self._change(self._add, added)
            for pattern, refusal in refused.items():
                for number in by_pattern[pattern]:
                    errors[number] = refusal
        return errors

    async def delete(self, acl_filter: AclFilter) -> list[AclBinding]:
        """Delete the ACLs that match a filter, and return them.

        :raises CoordinationError: the metadata store is unreachable. Some ACLs may have been deleted.
        """
        await self.read_changes()  # another broker may have created a matching ACL a moment ago
        found = await self._scheduler.finish(self.find(acl_filter))
        patterns = list(dict.fromkeys(each.pattern for each in found))
        deleted: list[AclBinding] = []
        for portion in _portions(patterns):
            deleted += await self._change(self._remove, portion, acl_filter)
        return deleted

    async def _change(self, function: Any, *arguments: Any) -> Any:
        # Not cancelled if the client disconnects: otherwise metadata store and memory could disagree.
        writing = asyncio.ensure_future(self._in_acl_thread(function, *arguments))
        writing.add_done_callback(self._note_written)
        _, _, result = await completed(writing)
        return result

    def _note_written(self, writing: asyncio.Future[tuple[int, Acls, Any]]) -> None:
        if not writing.cancelled() and writing.exception() is None:
            number, found, _ = writing.result()
            self._apply(number, found)

    def _apply(self, number: int, found: Acls) -> None:
        if number > self._applied:
            self._applied = number
            if found is not self._authorizer.acls:
                self._authorizer.acls = found  # first, so that no subscriber of the metadata image can prevent it
            self._metadata.put_acls(found)

    # -- on the thread for ACLs ------------------------------------------------------------------------------

    def _read_all(self) -> tuple[int, Acls]:
        self._seen = None
        changes = acls.read_changes(self._tree, self._on_change)  # before the nodes, so that no change is missed
        found = acls.read_acls(self._tree)
        gone: dict[ResourcePattern, acls.Entries] = dict.fromkeys(self._known.patterns - found.keys(), ())
        self._seen = changes
        return self._put({**gone, **found})

    def _read_changes(self) -> tuple[int, Acls] | None:
        """Read the changed nodes; return None if there are none."""
        if self._seen is None:
            return self._read_all()
        changes = acls.read_changes(self._tree, self._on_change)
        patterns = changes.since(self._seen)
        if patterns is None:
            return self._read_all()
        if not patterns:
            return None
        found = {pattern: acls.read_pattern(self._tree, pattern) for pattern in patterns}
        self._seen = changes
        return self._put(found)

    def _on_change(self, _event: WatchEvent) -> None:
        """Schedule a read. The metadata store calls this method on its own thread."""
        self._loop.call_soon_threadsafe(self._is_due.set)

    def _add(self, added: Mapping[ResourcePattern, list[Any]]) -> tuple[int, Acls, dict[ResourcePattern, ApiError]]:
        changed, refused = {}, {}
        for pattern, entries in added.items():
            try:
                changed[pattern] = acls.add(self._tree, pattern, entries)
            except acls.TooManyAclsError as error:
                refused[pattern] = ApiError(ErrorCode.INVALID_REQUEST, str(error))
        self._tree.flush()
        return (*self._put(changed), refused)

    def _remove(self, patterns: Iterable[ResourcePattern], acl_filter: AclFilter) -> tuple[int, Acls, list[AclBinding]]:
        changed = {}
        removed: list[AclBinding] = []
        for pattern in patterns:
            is_unwanted = functools.partial(_matches, acl_filter, pattern)
            changed[pattern], gone = acls.remove(self._tree, pattern, is_unwanted)
            removed += (AclBinding(pattern, entry) for entry in gone)
        self._tree.flush()
        return (*self._put(changed), removed)

    def _put(self, changed: Mapping[ResourcePattern, acls.Entries]) -> tuple[int, Acls]:
        self._known = self._known.with_patterns(changed)
        self._number += 1
        return self._number, self._known


def _matches(acl_filter: AclFilter, pattern: ResourcePattern, entry: AclEntry) -> bool:
    return acl_filter.matches(AclBinding(pattern, entry))


def _includes(acl_filter: AclFilter, pattern: ResourcePattern) -> bool:
    """Return whether a filter may find ACLs. Clients of Kafka fail if a response contains an unknown type."""
    return pattern.type is not ResourceType.SUBJECT or acl_filter.type is ResourceType.SUBJECT


def _portions(patterns: Sequence[ResourcePattern]) -> Iterable[Sequence[ResourcePattern]]:
    return (patterns[start : start + PATTERNS_AT_ONCE] for start in range(0, len(patterns), PATTERNS_AT_ONCE))
