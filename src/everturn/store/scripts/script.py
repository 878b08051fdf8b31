"""Transactions as scripts: written once, run by either database.

A script is a generator. It yields queries (by name, see ``sql/``) and is sent their rows; what it returns
is the transaction's result. The SQLite writer drives it in its thread, the PostgreSQL driver drives it
on a connection. So both stores do the same thing in the same order, and differ only in how a query is
run and how a commit becomes durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.events import Payload, encode
from everturn.domain.ids import Ids
from everturn.domain.probe import Moment, Probe

# A row as the driver returns it. Any: its columns have types only once a Select has named them.
Row = Sequence[Any]
Rows = Sequence[Row]
Value = str | int | float | bytes | Sequence[str] | Sequence[int] | None
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Query(msgspec.Struct, frozen=True):
    """A named query and its arguments; with ``many`` it runs once for each tuple."""

    name: str
    args: tuple[object, ...] = ()  # of type Value; ``q`` and Select check them
    many: Sequence[tuple[Value, ...]] | None = None


class IndexBroken(Exception):
    """Thrown into a script whose query found the search index damaged; the script may repair it."""


Script = Generator[Query, Rows, T]


def q(name: str, *args: Value) -> Query:
    return Query(name, args)


def encode_list(values: Iterable[str]) -> str:
    """A list as one argument, for the macro ``in_list``."""
    return msgspec.json.encode(list(values)).decode()


class Select(Generic[P, S]):
    """A query whose rows have names and types: ``P`` are its arguments, ``shape`` has a field per column.

    ``queries.py`` declares them all, and a test compares each shape with the columns of its query.
    """

    __slots__ = ("name", "shape")

    def __init__(self, name: str, shape: type[S]) -> None:
        self.name = name
        self.shape = shape

    def all(self, *args: P.args, **kwargs: P.kwargs) -> Script[list[S]]:
        shape = self.shape
        return [shape(*row) for row in (yield Query(self.name, args))]

    def first(self, *args: P.args, **kwargs: P.kwargs) -> Script[S | None]:
        rows = yield Query(self.name, args)
        return self.shape(*rows[0]) if rows else None

    def only(self, *args: P.args, **kwargs: P.kwargs) -> Script[S]:
        """The one row that such a query always has."""
        rows = yield Query(self.name, args)
        return self.shape(*rows[0])


class SelectValue(Generic[P, T]):
    """A query with one column."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def all(self, *args: P.args, **kwargs: P.kwargs) -> Script[list[T]]:
        return [row[0] for row in (yield Query(self.name, args))]

    def first(self, *args: P.args, **kwargs: P.kwargs) -> Script[T | None]:
        rows = yield Query(self.name, args)
        return rows[0][0] if rows else None

    def only(self, *args: P.args, **kwargs: P.kwargs) -> Script[T]:
        """The value of the one row that such a query always has."""
        rows = yield Query(self.name, args)
        value: T = rows[0][0]
        return value


class SelectTuples(Generic[P, T]):
    """A query whose rows stay tuples, because there are thousands and a struct for each would be felt."""

    __slots__ = ("columns", "name")

    def __init__(self, name: str, columns: tuple[str, ...]) -> None:
        self.name = name
        self.columns = columns

    def all(self, *args: P.args, **kwargs: P.kwargs) -> Script[Sequence[T]]:
        rows: Sequence[Any] = yield Query(self.name, args)  # T by declaration: ``columns`` are checked
        return rows


class StoredEvents(msgspec.Struct, frozen=True):
    """Consecutive events as they were written, not yet made into Event values.

    ``position`` and ``number`` are those of the first; the others follow without a gap. A reader's event
    is made from it only if the session has a follower, which keeps the writer's path short.
    """

    session_id: str
    position: int
    turn_id: str | None
    epoch: int
    number: int
    at: int
    data: Sequence[bytes]
    is_late: bool = False


class Tx:
    """What a script may use besides queries, and what it publishes once it is durable."""

    __slots__ = ("changed", "dialect", "events", "forgets", "ids", "machine", "moments", "now", "probe")

    def __init__(self, dialect: str, now: int, ids: Ids, probe: Probe, machine: str | None = None) -> None:
        self.dialect = dialect
        self.machine = machine  # that runs the script, as rows name it; None on SQLite
        self.now = now
        self.ids = ids
        self.probe = probe
        self.events: list[StoredEvents] = []
        self.changed: dict[str, str] = {}  # id, of a session as a rule -> owner
        self.forgets = False  # something was deleted for good: the log must not keep it either
        self.moments: list[tuple[Moment, str]] = []  # passed by after the commit

    def touch(self, owner: str, changed_id: str) -> None:
        """Mark a session's row in the list as changed. The id of anything else (a schedule, a job, a turn
        whose reply is in doubt) says that what needs the owner may have changed."""
        self.changed[changed_id] = owner


class Append(msgspec.Struct):
    """Events of one turn on their way into the journal, numbered from ``first_number``.

    ``at`` 0 means: the time of the transaction. What comes from a spool has the time it happened.
    """

    turn_id: str
    epoch: int
    first_number: int
    data: list[bytes]
    at: int = 0


def append_of(turn_id: str, epoch: int, first_number: int, payloads: Sequence[Payload]) -> Append:
    return Append(turn_id, epoch, first_number, [encode(payload) for payload in payloads])


class WriterFigures(Protocol):
    """What a writer counts. ``log_trouble``: why SQLite's log could not be moved; empty if it could."""

    batches: int
    items_done: int
    commit_seconds: deque[float]
    log_trouble: str

    @property
    def waiting(self) -> int: ...


class Database(Protocol):
    """What the nouns need of a database."""

    clock: Clock
    ids: Ids
    probe: Probe

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        ...

    @property
    def writer(self) -> WriterFigures: ...

    async def write(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``script(tx, *args)`` as one transaction; on return it is durable and published."""
        ...

    async def write_urgent(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like ``write``, for a caller outside that is not to wait for the work of turns. It can overtake
        writes that were asked for earlier."""
        ...

    async def read(
        self, script: Callable[Concatenate[Tx, P], Script[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``script(tx, *args)`` on one consistent snapshot."""
        ...

    async def append(self, append: Append) -> int:
        """Make events durable through the group commit; return the position of the last."""
        ...

    async def wait_delivered(self, turn_id: str, epoch: int) -> None:
        """Return when nothing of this writer waits in a spool; raise Fenced if it lost the turn."""
        ...

    @property
    def is_away(self) -> bool:
        """The database cannot be reached; appends go to the spool."""
        ...
