"""Sessions: create, read, list, change, title, delete, restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

import msgspec

from everturn.domain.errors import Gone, Invalid, KeyReused, NotFound, WrongState
from everturn.domain.machine import Machine
from everturn.domain.sessions import (
    NEW_SESSION,
    ORDINARY_SESSIONS,
    Deletion,
    Label,
    Labels,
    NewSession,
    Overview,
    Page,
    Session,
    SessionFilter,
    SessionKind,
    SessionPatch,
)
from everturn.domain.store_values import NO_REQUEST, Request
from everturn.store.checkpoints import switch_folder
from everturn.store.jobs import report_ended
from everturn.store.scripts.common import (
    add_change_event,
    bump,
    digest_of,
    get_session,
    get_session_again,
    lock_session,
    locked_shown_session,
    refuse_stale,
    shown_session,
    unindex,
)
from everturn.store.scripts.queries.files import WORKING_COPY
from everturn.store.scripts.queries.messages import MESSAGE_NUMBERS_OF_SESSION
from everturn.store.scripts.queries.sessions import (
    CREATION_GET,
    META_GET,
    SESSION_COUNTS,
    SESSION_INSERT,
    SESSION_LABELS,
    SESSION_LIST,
    SESSION_LIST_INDEXED,
    SESSION_LIST_MATCHING,
    SESSION_LIST_TITLED,
    SESSIONS_AFTER,
    SESSIONS_DELETED,
    SESSIONS_ON_KEY,
    SESSIONS_WITH_PROFILE,
    WAITING_SESSIONS,
    NewSessionColumns,
    SessionColumns,
)
from everturn.store.scripts.queries.turns import ASKS_OPEN
from everturn.store.scripts.rows import SessionRow, parameters_json, session_of, to_json
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.sessions.titles import (
    GRAM_CHARS,
    TITLE_CHARS_MAX,
    candidates,
    delete_title,
    needle_of,
    put_title,
    title_text,
)
from everturn.store.turns.endings import end_for_deletion

TAGS_MAX = 32
LIST_LIMIT_MAX = 200
LOOK_MAX = 2_000  # sessions that are looked through before the index is asked
LABELS_MAX = 500
SHORT_LOOK_MAX = 5_000  # sessions among which one or two letters are looked for
_FAR = (1 << 62, 1 << 62)


class Sessions:
    def __init__(self, db: Database, machine: Machine) -> None:
        self._db = db
        self._machine = machine.text

    async def create(
        self,
        owner: str,
        new: NewSession = NEW_SESSION,
        *,
        request: Request = NO_REQUEST,
    ) -> Session:
        title = _clean_title(new.title)
        asked = _AskedFor(title, new.key, new.private, new.project, new.profile, new.model)
        machine = None if new.project is None else self._machine
        return await self._db.write(_create, owner, asked, _Implied(new.preferred_profile, machine), request)

    async def get(self, owner: str, session_id: str) -> Session:
        row = await self._db.read(shown_session, owner, session_id)
        return row.session

    async def list(
        self,
        owner: str,
        wanted: SessionFilter = ORDINARY_SESSIONS,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        limit = max(1, min(limit, LIST_LIMIT_MAX))
        start = _FAR if cursor is None else _from_cursor(cursor)
        return await self._db.read(_list, owner, wanted, start, limit)

    async def overview(self, owner: str, *, limit: int, also: Collection[str] = ()) -> Overview:
        return await self._db.read(_overview, owner, limit, tuple(also))

    async def list_waiting(self, owner: str) -> Sequence[Session]:
        """Sessions whose turn waits for the user, whatever page they are on."""
        return await self._db.read(_list_waiting, owner)

    async def on_key(self, owner: str, key: str) -> Sequence[str]:
        """Ids of the sessions that share a session key."""
        return await self._db.read(_on_key, owner, key)

    async def change(
        self, owner: str, session_id: str, patch: SessionPatch, *, version: int | None = None
    ) -> Session:
        return await self._db.write(_change, owner, session_id, patch, version, self._machine)

    async def set_title(self, owner: str, session_id: str, title: str) -> Session:
        return await self._db.write(_set_title, owner, session_id, _clean_title(title))

    async def mark_deleted(self, owner: str, session_id: str, *, due_at: int) -> Session:
        return await self._db.write(_mark_deleted, owner, session_id, due_at)

    async def restore(self, owner: str, session_id: str) -> Session:
        return await self._db.write(_restore, owner, session_id)

    async def labels(self, owner: str) -> Labels:
        return await self._db.read(_labels, owner)

    async def count_with_profile(self, profile: str) -> int:
        """Of all owners."""
        return await self._db.read(_count_with_profile, profile)

    async def discard_empty(self, *, before: int, limit: int = 500) -> int:
        if not (await self._db.read(_unseen, before, 1)):
            return 0
        return await self._db.write(_discard_empty, before, limit)

    async def deletions(self) -> Sequence[Deletion]:
        return await self._db.read(_deletions)

    async def delete(self, owner: str, session_id: str, *, is_purge: bool = False) -> None:
        await self._db.write(_delete, owner, session_id, is_purge)


def _count_with_profile(tx: Tx, profile: str) -> Script[int]:
    return (yield from SESSIONS_WITH_PROFILE.only(profile))


class _AskedFor(msgspec.Struct, frozen=True):
    """What the digest of a creation covers. Digests are stored: a field more would make repeats look new."""

    title: str
    key: str
    private: bool
    project: str | None
    profile: str | None
    model: str | None


class _Implied(msgspec.Struct, frozen=True):
    """What a creation does not ask for: the profile to use if none is named, and the machine that has the
    project's folder."""

    profile: str | None
    machine: str | None


def _create(tx: Tx, owner: str, asked: _AskedFor, implied: _Implied, request: Request) -> Script[Session]:
    digest = digest_of("create", asked)
    if request.key is not None:
        known = yield from CREATION_GET.first(owner, request.key)
        if known is not None:
            if known.digest != digest:
                raise KeyReused(request.key)
            return (yield from get_session(tx, owner, known.session_id)).session
    session_id = tx.ids.session()
    session_no = yield from SESSION_INSERT.only(
        session_id,
        owner,
        asked.key,
        tx.now,
        asked.title,
        int(bool(asked.title)),
        int(asked.private),
        asked.project,
        asked.profile or implied.profile,
        asked.model,
        implied.machine,
    )
    yield q("tail_insert", session_no, owner, tx.now)
    yield from put_title(tx, session_no, title_text(asked.title, ()))
    if request.key is not None:
        yield q("creation_free", owner, request.key)
        yield q("creation_put", owner, request.key, digest, session_no)
    tx.touch(owner, session_id)
    return (yield from get_session(tx, owner, session_id)).session


def start_session(tx: Tx, owner: str, key: str, profile: str, *, title: str = "") -> Script[Session]:
    """A new session of a chat or schedule, in the transaction that gives it its first turn."""
    asked = _AskedFor(title, key, False, None, profile, None)
    return (yield from _create(tx, owner, asked, _Implied(None, None), NO_REQUEST))


def _list(
    tx: Tx, owner: str, wanted: SessionFilter, start: tuple[int, int], limit: int
) -> Script[Page[Session]]:
    if wanted.until is not None:
        start = min(start, (wanted.until, 0))  # lists go from the newest to the oldest
    page = _page((yield from _find_matching(tx, owner, wanted, start, limit)), limit)
    since = wanted.since
    if since is None or not page.items or page.items[-1].updated_at >= since:
        return page
    return Page(tuple(session for session in page.items if session.updated_at >= since))


def _find_matching(
    tx: Tx, owner: str, wanted: SessionFilter, start: tuple[int, int], limit: int
) -> Script[list[tuple[Session, int]]]:
    archived, needle = wanted.archived, needle_of(wanted.query)
    if not needle and wanted.tag and len(tag := needle_of(wanted.tag)) >= GRAM_CHARS:
        needle = tag  # the index of titles has the tags, too
    flag = -1 if archived is None else int(archived)
    place = (owner, flag, *start, limit + 1)
    pin = -1 if wanted.pinned is None else int(wanted.pinned)
    narrowed = (*place, pin, to_json(wanted.tag) if wanted.tag else "")
    if needle:
        rows = yield from _find_titled(tx, narrowed, limit + 1, needle, wanted.project or "")
    elif archived is not None and wanted.pinned is None and wanted.tag is None and not wanted.project:
        rows = yield from SESSION_LIST.all(*place)
    else:
        rows = yield from SESSION_LIST_MATCHING.all(*narrowed, wanted.project or "")
    return [(found.session, found.no) for found in map(session_of, rows)]


# Owner, archived, last seen (updated_at, session_no), how many, pinned, tag: $1 to $7 of the list's queries.
_Narrowed = tuple[str, int, int, int, int, int, str]


def _find_titled(
    tx: Tx, narrowed: _Narrowed, limit: int, needle: str, project: str
) -> Script[list[SessionColumns]]:
    """Sessions with the needle in their title or tags. What many titles hold fills a page from the newest
    sessions; of what few hold, the index has few candidates. One or two letters have no index."""
    rows = yield from SESSION_LIST_TITLED.all(*narrowed, needle, LOOK_MAX, project)
    if len(rows) == limit:
        return rows
    if len(needle) < GRAM_CHARS:
        return (yield from SESSION_LIST_TITLED.all(*narrowed, needle, SHORT_LOOK_MAX, project))
    return (yield from SESSION_LIST_INDEXED.all(*narrowed, needle, candidates(tx.dialect, needle), project))


def _labels(tx: Tx, owner: str) -> Script[Labels]:
    tags: Counter[str] = Counter()
    projects: Counter[str] = Counter()
    for row in (yield from SESSION_LABELS.all(owner)):
        tags.update(dict.fromkeys(msgspec.json.decode(row.tags, type=list[str]), row.sessions))
        if row.project is not None:
            projects[row.project] += row.sessions
    return Labels(_most_used(tags), _most_used(projects))


def _most_used(counts: Counter[str]) -> tuple[Label, ...]:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Label(name, sessions) for name, sessions in ranked[:LABELS_MAX])


def _list_waiting(tx: Tx, owner: str) -> Script[list[Session]]:
    return [session_of(row).session for row in (yield from WAITING_SESSIONS.all(owner))]


def _overview(tx: Tx, owner: str, limit: int, also: tuple[str, ...]) -> Script[Overview]:
    page = _page((yield from _find_matching(tx, owner, SessionFilter(), _FAR, limit)), limit)
    on_page = {session.id for session in page.items}
    others = yield from rows_of(tx, owner, [session_id for session_id in also if session_id not in on_page])
    counts = yield from SESSION_COUNTS.only(owner)
    asking = tuple(ask.root_session or ask.session_id for ask in (yield from ASKS_OPEN.all(owner, "")))
    return Overview(page, tuple(others), counts.sessions, counts.archived, asking)


def rows_of(tx: Tx, owner: str, ids: Iterable[str]) -> Script[list[tuple[str, Session | None]]]:
    """These sessions as they are now; None for one that lists do not show, and for the id of something else.
    A delegate is not among them: it is in no list, and a page that shows it must not take it for deleted."""
    found: list[tuple[str, Session | None]] = []
    for session_id in ids:
        if not session_id.startswith("ses_"):
            found.append((session_id, None))
            continue
        try:
            row = yield from get_session(tx, owner, session_id)
            if row.kind != SessionKind.DELEGATE or row.is_deleted:
                found.append((session_id, row.session if row.is_listed else None))
        except (Gone, NotFound):
            found.append((session_id, None))
    return found


def _on_key(tx: Tx, owner: str, key: str) -> Script[list[str]]:
    return (yield from SESSIONS_ON_KEY.all(owner, key))


def _change(
    tx: Tx, owner: str, session_id: str, patch: SessionPatch, version: int | None, machine: str | None
) -> Script[Session]:
    session = yield from locked_shown_session(tx, owner, session_id)
    refuse_stale(session, version)
    given = {
        name: value
        for name in patch.__struct_fields__
        if (value := getattr(patch, name)) is not msgspec.UNSET
    }
    if set(given) == {"is_unread"}:
        # Having read a session is not a change of it: other tabs' versions stay good.
        yield q("session_seen", session.no, int(given["is_unread"]))
        tx.touch(owner, session_id)
        return (yield from get_session_again(session))
    if "title" in given:
        given["title"] = _clean_title(given["title"])
        given["is_title_given"] = bool(given["title"])
    if "tags" in given:
        given["tags"] = _clean_tags(given["tags"])
    if "project" in given:
        if given["project"] != session.session.project:
            yield from _refuse_restoring(session)
        given["machine"] = None if given["project"] is None else machine
        if (given["project"], given["machine"]) != (session.session.project, session.session.machine):
            yield from switch_folder(tx, session, given["project"], machine)
    new = msgspec.structs.replace(session.session, **given)
    yield q(
        "session_update",
        session.no,
        new.title,
        int(new.is_title_given),
        int(new.pinned),
        int(new.archived),
        int(new.private),
        to_json(new.tags),
        new.project,
        new.profile,
        new.model,
        int(new.is_unread),
        new.machine,
    )
    if new.parameters != session.session.parameters:
        yield q("session_parameters", session.no, parameters_json(new.parameters))
    if (new.title, new.tags) != (session.session.title, session.session.tags):
        yield from put_title(tx, session.no, title_text(new.title, new.tags))
    if new.archived != session.session.archived:
        yield q("tail_archived", session.no, int(new.archived))
    tx.touch(owner, session_id)
    yield from add_change_event(tx, session, "settings", session.session.version + 1, session.session.head)
    return (yield from get_session_again(session))


def _refuse_restoring(session: SessionRow) -> Script[None]:
    """What a folder has to hold must not be written into another one: that one is perhaps the user's own."""
    row = yield from WORKING_COPY.first(session.no)
    if row is not None and row.wanted is not None:
        raise WrongState(
            f"The files of session {session.id} are being restored. Its folder was not changed.",
            hint="Try again.",
        )


def _set_title(tx: Tx, owner: str, session_id: str, title: str) -> Script[Session]:
    session = yield from lock_session(tx, owner, session_id)
    if (
        session.session.is_title_given  # guard: a11
        or not title
    ):
        return session.session
    yield q("session_title", session.no, title)
    yield from put_title(tx, session.no, title_text(title, session.session.tags))
    tx.touch(owner, session_id)
    yield from add_change_event(tx, session, "title", session.session.version + 1, session.session.head)
    return (yield from get_session_again(session))


def _mark_deleted(tx: Tx, owner: str, session_id: str, due_at: int) -> Script[Session]:
    session = yield from locked_shown_session(tx, owner, session_id)
    return (yield from _set_deleted(tx, session, due_at))


def _restore(tx: Tx, owner: str, session_id: str) -> Script[Session]:
    session = yield from lock_session(tx, owner, session_id)
    if not session.is_deleted:
        raise WrongState(f"Session {session_id} is not deleted.", hint="There is nothing to restore.")
    yield from _set_deleted(tx, session, None)
    yield from report_ended(tx, session)
    return (yield from get_session_again(session))


def _set_deleted(tx: Tx, session: SessionRow, due_at: int | None) -> Script[Session]:
    yield q("session_deleted", session.no, due_at)
    yield q("tail_listed", session.no, int(due_at is None and session.kind == SessionKind.ORDINARY))
    version = yield from bump(tx, session, is_transcript=False)
    yield from add_change_event(tx, session, "settings", version, session.session.head)
    return (yield from get_session_again(session))


def _deletions(tx: Tx) -> Script[list[Deletion]]:
    rows = yield from SESSIONS_DELETED.all()
    return [Deletion(row.id, row.owner, row.deleted_at) for row in rows]


def _unseen(tx: Tx, before: int, limit: int) -> Script[list[NewSessionColumns]]:
    """Sessions that were not looked at for emptiness yet and are old enough, in the order they were made. It
    stops at the first that is not: it may still be used, and has to be looked at later."""
    seen = int((yield from META_GET.first("empty_through")) or 0)
    rows = yield from SESSIONS_AFTER.all(seen, limit)
    return list(takewhile(lambda row: row.created_at < before, rows))


def _discard_empty(tx: Tx, before: int, limit: int) -> Script[int]:
    seen = yield from _unseen(tx, before, limit)
    for row in seen:
        if row.is_empty:
            # Only with its lock is it certain that no turn begins meanwhile.
            session = yield from lock_session(tx, row.owner, row.id)
            (again,) = yield from SESSIONS_AFTER.all(row.session_no - 1, 1)
            if again.is_empty:
                yield from _set_deleted(tx, session, tx.now)
    if seen:
        yield q("meta_put", "empty_through", str(seen[-1].session_no))
    return len(seen)


def _delete(tx: Tx, owner: str, session_id: str, is_purge: bool) -> Script[None]:
    session = yield from lock_session(tx, owner, session_id)
    if is_purge and session.deleted_at is None:
        raise WrongState(f"Session {session_id} was restored.", hint="It is kept.")
    yield from end_for_deletion(tx, session)
    yield from unindex(tx, (yield from MESSAGE_NUMBERS_OF_SESSION.all(session.no)))
    yield q("messages_delete_session", session.no)
    yield q("events_delete_session", session.no)
    yield from delete_title(tx, session.no)
    yield q("tombstone_insert", session_id, owner, tx.now)  # guard: a17
    yield q("session_delete", session.no)
    # Nothing of the session may be published any more, not even its own end.
    tx.events.clear()
    tx.forgets = True
    tx.touch(owner, session_id)


def _clean_title(title: str) -> str:
    title = " ".join(title.split())
    if len(title) > TITLE_CHARS_MAX:
        raise Invalid(
            f"The title has {len(title)} characters; the limit is {TITLE_CHARS_MAX}.", hint="Shorten it."
        )
    return title


def _clean_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    cleaned = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if len(cleaned) > TAGS_MAX or any(len(tag) > 64 for tag in cleaned):
        raise Invalid(f"A session has at most {TAGS_MAX} tags of at most 64 characters.", hint="Use fewer.")
    return cleaned


def _page(rows: list[tuple[Session, int]], limit: int) -> Page[Session]:
    items = tuple(session for session, _ in rows[:limit])
    cursor = None
    if len(rows) > limit:
        last, number = rows[limit - 1]
        cursor = f"{last.updated_at}.{number}"
    return Page(items, cursor)


def _from_cursor(cursor: str) -> tuple[int, int]:
    updated_at, _, number = cursor.partition(".")
    if not (cursor.isascii() and _is_number(updated_at) and _is_number(number)):
        raise Invalid("The cursor is not one of this server's.", hint="Start again without a cursor.")
    return int(updated_at), int(number)


def _is_number(text: str) -> bool:
    return text.isdigit() and len(text) <= len(str(_FAR[0])) and int(text) <= _FAR[0]
