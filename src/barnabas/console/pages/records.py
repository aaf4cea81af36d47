"""The records of a topic: browsing, filters, one record in full, and the live tail."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from barnabas.client.admin.topics import TopicDescription
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console.cluster_view import text_of
from barnabas.console.context import ENDED, LIVE_PAGES_MAX, Context
from barnabas.console.formats import time_of
from barnabas.console.pages.fields import time_in_ms, whole_number
from barnabas.console.record_decoding import Decoded
from barnabas.console.record_search import RECORDS_MAX, Filter, reader, search
from barnabas.console.record_text import Branch, Shown, shown, visible
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.serialization.registry_settings import without_user

DEFAULT_LIMIT = 50
FROM_END, FROM_BEGINNING, FROM_OFFSET, FROM_TIME = "end", "beginning", "offset", "time"
FIELDS = ("partition", "offset", "time", "key", "value", "header", "path", "equals")
LIVE_RECORDS_PER_S = 20
LIVE_CHARACTERS_MAX = 300
WHOLE_CHARACTERS_MAX = 200_000
TOO_MANY_LIVE_PAGES = f"the console serves at most {LIVE_PAGES_MAX} live pages; close one and try again"


async def records(context: Context) -> Response:
    """Show records, or only the form if the user has not asked for any yet."""
    topic = context.query("topic")
    fields = {name: context.query(name) for name in FIELDS}
    fields["from"] = context.query("from", FROM_END)
    limit = min(max(whole_number(context.query("limit") or str(DEFAULT_LIMIT), "limit"), 1), RECORDS_MAX)
    described = await _described(context, topic)
    places = _places_of(described, fields["partition"])
    begins, ends = await asyncio.gather(
        context.view.within(context.view.admin.beginning_offsets(places)),
        context.view.within(context.view.admin.end_offsets(places)),
    )
    wanted = Filter(fields["key"], fields["value"], fields["header"], fields["path"], fields["equals"])
    newest_first = fields["from"] == FROM_END
    starts = await _starts(context, fields, begins, ends, limit, is_filtered=not wanted.is_empty)
    found = await search(
        context.view, starts, ends, wanted, limit, SYSTEM_CLOCK,
        newest_first=newest_first, decoding=context.decoding,
    )  # fmt: skip
    rows = [
        (record, shown(record.key, key, characters_max=200), shown(record.value, value))
        for record, key, value in await _decoded(context, found.records)
    ]
    return context.page(
        "_records.html" if context.is_partial else "records.html",
        title=f"Records of {topic}",
        topic=topic,
        partitions=sorted(each.partition for each in described.partitions),
        offline=sorted(each.partition for each in described.partitions if each.leader < 0),
        rows=rows,
        found=found,
        fields=fields,
        limit=limit,
        command=_command(context, topic, fields, limit, rows),
        schema_link=schema_link,
    )


async def record(context: Context) -> Response:
    """Show one record in full."""
    one = await _one(context)
    ((_record, key, value),) = await _decoded(context, [one])
    headers = [(visible(name), shown(value)) for name, value in one.headers]
    return context.page(
        "record.html",
        title=f"{one.topic}-{one.partition} at {one.offset}",
        record=one,
        key=shown(one.key, key, characters_max=WHOLE_CHARACTERS_MAX),
        value=shown(one.value, value, characters_max=WHOLE_CHARACTERS_MAX),
        headers=headers,
        schema_link=schema_link,
        query=urlencode({"topic": one.topic, "partition": one.partition, "offset": one.offset}),
    )


async def value(context: Context) -> Response:
    """Return the bytes of a value as a file."""
    one = await _one(context)
    name = f"{one.topic}-{one.partition}-{one.offset}.bin"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(one.value or b"", media_type="application/octet-stream", headers=headers)


async def live(context: Context) -> Response:
    """Stream new records as server-sent events, until the page is closed."""
    topic = context.query("topic")
    places = await _places(context, topic, context.query("partition"))
    if context.console.live_pages.is_full:
        raise HTTPException(503, TOO_MANY_LIVE_PAGES)
    return StreamingResponse(_events(context, places), media_type="text/event-stream")


async def produce(context: Context) -> Response:
    """Show the form for a record, or send the record."""
    topic = context.query("topic")
    if context.request.method != "POST":
        await _places(context, topic, "")
        return context.page("produce.html", title=f"Produce to {topic}", topic=topic)
    form = await context.form()
    topic = form.get("topic", "")
    partition = None if not form.get("partition") else whole_number(form["partition"], "partition")
    headers = _headers(form.get("headers", ""))
    key = form.get("key", "").encode() or None
    async with AsyncProducer(dict(context.view.settings)) as producer:
        content = None if form.get("null") else form.get("value", "").replace("\r\n", "\n").encode()
        delivery = await producer.send(topic, content, key=key, partition=partition, headers=headers)
        sent = await context.view.within(_delivered(delivery))
    query = urlencode({"topic": sent.topic, "partition": sent.partition, "offset": sent.offset})
    return RedirectResponse(f"/record?{query}", 303)


async def _delivered(delivery: Any) -> Any:
    return await delivery


async def _events(context: Context, places: list[TopicPartition]) -> AsyncIterator[str]:
    if context.console.live_pages.is_full:  # other pages may have begun since the check of the request
        yield _problem(TOO_MANY_LIVE_PAGES)
        return
    with context.console.live_pages:
        try:
            async with reader(context.view, auto_offset_reset="latest") as consumer:
                consumer.assign(places)
                consumer.seek_to_end()
                while not context.has_ended:
                    polled = await consumer.poll(max_records=500, timeout_s=1.0)
                    shown_records = polled[-LIVE_RECORDS_PER_S:]
                    lines = [_line(*each) for each in await _decoded(context, shown_records)]
                    yield _event(lines, len(polled) - len(shown_records))
                    await asyncio.sleep(1.0 if polled else 0.0)
                    await context.view.cluster()  # the consumer waits for a broker without an error
        except (BarnabasError, TimeoutError) as error:
            if not context.has_ended:
                yield _problem(text_of(error))
                return
        yield f"event: ended\ndata: {ENDED}\n\n"


def _problem(text: str) -> str:
    return f"event: problem\ndata: {json.dumps(text)}\n\n"


def _event(lines: list[dict[str, Any]], skipped: int) -> str:
    return f"data: {json.dumps({'records': lines, 'skipped': skipped})}\n\n"


async def _decoded(context: Context, records: Sequence[Any]) -> list[tuple[Any, Decoded | None, Decoded | None]]:
    """Return each record with its decoded key and its decoded value."""
    if context.decoding is None or not records:
        return [(record, None, None) for record in records]
    found = await context.decoding.decode([*(each.key for each in records), *(each.value for each in records)])
    return list(zip(records, found[: len(records)], found[len(records) :], strict=True))


def _line(record: Any, key: Decoded | None, value: Decoded | None) -> dict[str, Any]:
    return {
        "where": f"{record.partition}:{record.offset}",
        "time": time_of(record.timestamp_ms),
        "key": _part(record.topic, "key", shown(record.key, key, characters_max=100)),
        "value": _part(record.topic, "value", shown(record.value, value, characters_max=LIVE_CHARACTERS_MAX)),
        "link": "/record?" + urlencode({"topic": record.topic, "partition": record.partition, "offset": record.offset}),
    }


def _part(topic: str, part: str, found: Shown) -> dict[str, Any]:
    """Return a key or a value for the script of a live page."""
    line: dict[str, Any] = {"text": found.text}
    if found.decoded is not None:
        line["schema"], line["schemaLink"] = schema_link(found.decoded, topic, part)
        line["problem"] = visible(found.decoded.problem)
    if found.tree is not None:
        line["tree"] = _nested(found.tree)
    return line


def _nested(branch: Branch) -> list[Any]:
    return [branch.name, branch.text, [_nested(each) for each in branch.children]]


def schema_link(decoded: Decoded, topic: str, part: str) -> tuple[str, str]:
    """Return the name of a schema, and its page; an empty text if the page is not known.

    :param part: `key` or `value`.
    """
    home = None if decoded.schema is None else decoded.schema.home(topic, part)
    if home is None:
        return f"schema {decoded.schema_id}", ""
    subject, version = home
    link = "/schema?" + urlencode({"name": subject, "version": version})
    return f"{subject} version {version}, schema {decoded.schema_id}", link


async def _places(context: Context, topic: str, partition: str) -> list[TopicPartition]:
    """Return the partitions that a request names, without those that no broker leads.

    :raises ApiError: the topic does not exist, or the user may not see it.
    """
    return _places_of(await _described(context, topic), partition)


async def _described(context: Context, topic: str) -> TopicDescription:
    (described,) = await context.view.within(context.view.admin.describe_topics([topic]))
    return described


def _places_of(described: TopicDescription, partition: str) -> list[TopicPartition]:
    """Return a partition, or all, without those that no broker leads.

    :raises HTTPException: the partition does not exist, or has no leader.
    """
    led = {each.partition: each.leader >= 0 for each in described.partitions}
    if not partition:
        return [TopicPartition(described.name, number) for number, is_led in led.items() if is_led]
    number = whole_number(partition, "partition")
    if number not in led:
        raise HTTPException(404, f"topic {described.name} has no partition {number}")
    if not led[number]:
        raise HTTPException(503, f"partition {number} of topic {described.name} has no leader now; try again later")
    return [TopicPartition(described.name, number)]


async def _starts(
    context: Context,
    fields: Mapping[str, str],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limit: int,
    *,
    is_filtered: bool,
) -> dict[TopicPartition, int]:
    """Return the offsets at which a search begins."""
    kind = fields["from"]
    if kind == FROM_END:
        back = 20_000 if is_filtered else limit
        return {where: max(begin, ends[where] - back) for where, begin in begins.items()}
    if kind == FROM_OFFSET:
        offset = whole_number(fields["offset"], "offset")
        return {where: min(max(begin, offset), ends[where]) for where, begin in begins.items()}
    if kind == FROM_TIME:
        time_ms = time_in_ms(fields["time"])
        found = await context.view.within(context.view.admin.offsets_for_times(dict.fromkeys(begins, time_ms)))
        return {where: each.offset if (each := found.get(where)) is not None else ends[where] for where in begins}
    return dict(begins)


async def _one(context: Context) -> Any:
    """Return the record that a request names.

    :raises HTTPException: there is no such record.
    """
    topic, partition = context.query("topic"), context.query("partition") or "0"
    offset = whole_number(context.query("offset"), "offset")
    (where,) = await _places(context, topic, partition)
    view, first, end = context.view, {where: offset}, {where: offset + 1}
    if offset >= (await view.within(view.admin.end_offsets([where])))[where]:
        raise HTTPException(404, f"{where} ends before offset {offset}")
    found = await search(view, first, end, Filter(), 1, SYSTEM_CLOCK, newest_first=False)
    if not found.records or found.records[0].offset != offset:
        raise HTTPException(404, f"there is no record at offset {offset} of {where}")
    return found.records[0]


def _command(
    context: Context,
    topic: str,
    fields: Mapping[str, str],
    limit: int,
    rows: Sequence[tuple[Any, Shown, Shown]],
) -> str:
    """Return the command that shows the same records."""
    words = ["barnabas", "consume", topic, "-b", context.console.config.bootstrap]
    if fields["partition"]:
        words += ["-p", fields["partition"]]
    position = {FROM_OFFSET: fields["offset"], FROM_TIME: f"s@{fields['time']}", FROM_END: f"-{limit}"}
    words += ["-o", position.get(fields["from"], "beginning"), "-c", str(limit), "-e"]
    kinds = {"key": _kind(key for _record, key, _value in rows), "value": _kind(value for *_others, value in rows)}
    formats = [word for part, kind in kinds.items() if kind for word in ("-s", f"{part}={kind}")]
    if formats:
        words += [*formats, "-r", without_user(context.console.config.registry or "")]
    return shlex.join(words)


def _kind(parts: Iterable[Shown]) -> str:
    """Return the format of the first key or value that was decoded; an empty text if none was."""
    decoded = (each.decoded for each in parts if each.decoded is not None and not each.decoded.problem)
    return next((each.schema.kind.lower() for each in decoded if each.schema is not None), "")


def _headers(text: str) -> list[tuple[str, bytes]]:
    """Return headers from lines such as `name: value`."""
    found = []
    for line in text.splitlines():
        name, colon, content = line.partition(":")
        if line.strip() and not colon:
            raise HTTPException(400, "write each header as: name: value")
        if colon:
            found.append((name.strip(), content.strip().encode()))
    return found
