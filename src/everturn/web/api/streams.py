"""Streams: one session's events, or everything a user's tabs need on a single connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.clock import Clock
from everturn.domain.events import Event, Snapshot, encode
from everturn.domain.ids import check_id
from everturn.domain.sessions import Session
from everturn.domain.store import Store, StoreHealth
from everturn.domain.store_values import Trouble
from everturn.engine import Engine
from everturn.web.http.routing import EVENT_STREAM, AnyEndpoint, ApiCall, Endpoint, Nothing
from everturn.web.streams import sse
from everturn.web.streams.news import (
    Counts,
    JobsNews,
    ListSnapshot,
    NeedsNews,
    Newsroom,
    SessionNews,
    StoreNews,
)
from everturn.web.streams.streams import EventStream, Streams

_FIRST_PAGE = 50
_REPLAY_EVENTS = 500
_encoder = msgspec.json.Encoder()


class FollowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``after``: the position of the last event that was seen. ``follow`` 0: replay, then end."""

    after: Annotated[int, Meta(ge=0, le=10**15)] = 0
    follow: Annotated[int, Meta(ge=0, le=1)] = 1


class SharedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sessions``: ids, with commas between. ``after``: ``ses_a:12,ses_b:7``; default: from now on."""

    sessions: Annotated[str, Meta(max_length=4000, pattern=r"^[0-9a-z_,]*$")] = ""
    after: Annotated[str, Meta(max_length=4000, pattern=r"^[0-9a-z_,:]*$")] = ""


class StreamsApi:
    def __init__(
        self,
        engine: Engine,
        store: Store,
        streams: Streams,
        clock: Clock,
        *,
        sessions_max: int,
    ) -> None:
        self._engine = engine
        self._store = store
        self._streams = streams
        self._clock = clock
        self._sessions_max = sessions_max
        self._frames = sse.SharedFrames()

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/sessions/{session}/events",
                run=self.follow,
                summary="A session's events after a position, as they happen.",
                tag="streams",
                query=FollowQuery,
                answer=(sse.SessionEvent, sse.StreamEnd),
                media=EVENT_STREAM,
                errors=(e.NotFound, e.Gone),
                headers=("Last-Event-ID",),
                is_stream=True,
            ),
            Endpoint(
                method="GET",
                path="/api/events",
                run=self.follow_several,
                summary="The session list's news and the events of some sessions, on one connection.",
                tag="streams",
                query=SharedQuery,
                answer=(
                    sse.SessionEvent,
                    ListSnapshot,
                    SessionNews,
                    NeedsNews,
                    JobsNews,
                    StoreNews,
                    sse.StreamEnd,
                ),
                media=EVENT_STREAM,
                headers=("Last-Event-IDs",),
                is_stream=True,
            ),
        ]

    # --- one session ---------------------------------------------------------------------------------

    async def follow(self, call: ApiCall[FollowQuery, Nothing]) -> EventStream:
        session_id = call.path["session"]
        # The header wins: a browser that reconnects repeats the old address with a newer header.
        given = call.headers.get("last-event-id")
        after = sse.position_from(given) if given else call.query.after
        session = await self._engine.session(call.owner, session_id)
        self._streams.check_room(call.owner)
        run = self._follow_events if call.query.follow else self._replay_events

        async def source(stream: EventStream) -> str:
            position = after
            if after > session.position:
                position = session.position
                await stream.write(sse.frames([_rewind_event(session, self._clock.now_ms())]))
            return await run(stream, session, position)

        return EventStream(self._streams, call.caller, source)

    async def _follow_events(self, stream: EventStream, session: Session, after: int) -> str:
        async with aclosing(_read_patiently(self._engine, self._store, session, after)) as closing:
            async for events in closing:
                await stream.write(self._frames.of(events))
                if _ends(events):
                    break
        return "deleted"

    async def _replay_events(self, stream: EventStream, session: Session, after: int) -> str:
        journal = self._store.journal
        position = after
        while position < session.position:
            events = await journal.after(session.owner, session.id, position, limit=_REPLAY_EVENTS)
            if not events:
                break
            await stream.write(sse.frames(events))
            position = events[-1].position
        return "replayed"

    # --- one connection for everything ---------------------------------------------------------------

    async def follow_several(self, call: ApiCall[SharedQuery, Nothing]) -> EventStream:
        wanted = [check_id(item, "ses") for item in call.query.sessions.split(",") if item]
        wanted = list(dict.fromkeys(wanted))
        if len(wanted) > self._sessions_max:
            raise e.Invalid(f"At most {self._sessions_max} sessions can share one stream.")
        given = call.headers.get("last-event-id") or call.query.after
        after = sse.positions_from(given) if given else {}
        self._streams.check_room(call.owner)
        shared = _Shared(self._engine, self._store, self._clock, call.owner, wanted, after)
        return EventStream(self._streams, call.caller, shared.run)


class _Shared:
    """One reader of the shared stream: a task for the list's news and one for each session."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        clock: Clock,
        owner: str,
        wanted: list[str],
        after: dict[str, int],
    ) -> None:
        self._engine = engine
        self._store = store
        self._owner = owner
        self._wanted = wanted
        self._after = after
        self._clock = clock
        self._newsroom = Newsroom(clock.now_ms())
        self._cursors = sse.Cursors({})
        # One frame at a time: an id names every session's position, so it must not overtake frames of
        # another session that are still waiting for the reader's buffer.
        self._lock = anyio.Lock(fast_acquire=True)
        self._has_snapshot = anyio.Event()
        self._on_page: set[str] = set()

    async def run(self, stream: EventStream) -> str:
        sessions = await self._find_present(stream)
        self._cursors = sse.Cursors({one.id: self._start(one) for one in sessions})
        for session in sessions:
            if self._after.get(session.id, 0) > session.position:
                await stream.write(self._cursors.frames([_rewind_event(session, self._clock.now_ms())]))
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(self._follow, stream, session, name=f"follow {session.id}")
            group.start_soon(self._watch_patiently, stream, name="list news")
            # The watcher subscribes in its first step, before the list is read: what changes in between
            # comes as news after the snapshot.
            await anyio.lowlevel.checkpoint()
            trouble = await self._tell_snapshot(stream)
            self._has_snapshot.set()
            await self._watch_store(stream, trouble)
        return "deleted"

    async def _find_present(self, stream: EventStream) -> list[Session]:
        """The wanted sessions that exist. The reader is sent ``session.deleted`` for the others."""
        present = []
        for session_id in self._wanted:
            try:
                present.append(await self._engine.session(self._owner, session_id))
            except (e.NotFound, e.Gone):
                await self._tell(stream, SessionNews("session.deleted", session_id))
        return present

    def _start(self, session: Session) -> int:
        return min(self._after.get(session.id, session.position), session.position)

    async def _follow(self, stream: EventStream, session: Session) -> None:
        batches = _read_patiently(self._engine, self._store, session, self._start(session))
        try:
            async with aclosing(batches) as closing:
                async for events in closing:
                    async with self._lock:
                        await stream.write(self._cursors.frames(events))
                    if _ends(events):
                        break
        except (e.NotFound, e.Gone):
            pass  # deleted meanwhile; the list's news says so
        self._cursors.drop(session.id)

    async def _watch(self, stream: EventStream) -> None:
        async with aclosing(self._store.changes(self._owner)) as changes:
            async for batch in changes:
                await self._has_snapshot.wait()
                # None: another process wrote, and what it wrote is unknown.
                await self._tell_all(stream, await self._look() if batch is None else batch)
                if batch is None or any(not one.startswith("ses_") for one, _ in batch):
                    await self._tell(stream, NeedsNews())
                if batch is None or any(one.startswith("job_") for one, _ in batch):
                    await self._tell(stream, JobsNews())

    async def _watch_patiently(self, stream: EventStream) -> None:
        while True:
            try:
                await self._watch(stream)
            except e.StoreAway as away:
                await _wait_until_back(self._store, away)
                # Changes made while the store was away were not reported: read the list.
                await self._tell_all(stream, await self._look())
                await self._tell(stream, NeedsNews())
                await self._tell(stream, JobsNews())

    async def _watch_store(self, stream: EventStream, known: Trouble | None) -> None:
        """Reports trouble without reading the store, which may be away."""
        while True:
            known = await self._store.health_changed(known)
            await self._tell(stream, StoreNews("store.trouble" if known else "store.mended", known))

    async def _tell_all(self, stream: EventStream, batch: Iterable[tuple[str, Session | None]]) -> None:
        for session_id, session in batch:
            if not session_id.startswith("ses_"):
                continue
            news = self._newsroom.about(session_id, session)
            if news is not None:
                await self._tell(stream, news)

    async def _look(self) -> list[tuple[str, Session | None]]:
        """The first page as it is now, and the sessions that were on it before."""
        now = await self._store.sessions.overview(self._owner, limit=_FIRST_PAGE, also=self._on_page)
        self._on_page = {one.id for one in now.page.items}
        return [*((one.id, one) for one in reversed(now.page.items)), *now.others]

    async def _tell_snapshot(self, stream: EventStream) -> Trouble | None:
        """Returns the trouble that the snapshot names."""
        now = await self._store.sessions.overview(self._owner, limit=_FIRST_PAGE)
        shown = now.page.items
        self._newsroom.remember(shown)
        self._on_page = {one.id for one in shown}
        trouble = self._store.trouble
        snapshot = ListSnapshot(
            shown, Counts(now.sessions, now.archived, len(now.asks)), now.page.cursor, trouble
        )
        async with self._lock:
            ident = self._cursors.text or None
            await stream.write(sse.plain("sessions.snapshot", _encoder.encode(snapshot), ident=ident))
        return trouble

    async def _tell(self, stream: EventStream, news: SessionNews | NeedsNews | JobsNews | StoreNews) -> None:
        async with self._lock:
            await stream.write(sse.plain(news.kind, _encoder.encode(news)))


async def _read_patiently(
    engine: Engine, health: StoreHealth, session: Session, after: int
) -> AsyncGenerator[Sequence[Event], None]:
    """The session's events; waits while the database cannot be reached."""
    while True:
        try:
            async with aclosing(engine.follow(session.owner, session.id, after)) as batches:
                async for events in batches:
                    after = events[-1].position
                    yield events
        except e.StoreAway as away:
            await _wait_until_back(health, away)


async def _wait_until_back(health: StoreHealth, away: e.StoreAway) -> None:
    """Return when the database is back. Raises ``away`` if the store itself knows of no trouble."""
    trouble = health.trouble
    if trouble is None:
        raise away
    while trouble is not None:
        trouble = await health.health_changed(trouble)


def _rewind_event(session: Session, now_ms: int) -> Event:
    """For a cursor beyond the session's end, e.g. after a backup was restored."""
    payload = Snapshot(position=session.position, version=session.version)
    return Event(session.id, session.position, None, "snapshot", now_ms, encode(payload))


def _ends(events: Sequence[Event]) -> bool:
    last = events[-1]
    return last.kind == "session.changed" and b'"what":"deleted"' in last.data
