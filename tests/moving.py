"""A store that holds something in every table, and a comparison of two data folders that knows no code of ours."""

from __future__ import annotations

import tarfile
from pathlib import Path

import apsw

from everturn.store import Store, open_store
from everturn.store.scripts.queries.files import FILES_ALL
from everturn.store.scripts.script import Script, Tx
from everturn.testing.acting import ME, new_session

GOLDEN = Path(__file__).parent / "golden" / "folders" / "schema-4.tar.gz"
_S, _T = "(SELECT min(session_no) FROM sessions)", "(SELECT min(turn_no) FROM turns)"
# A row for each table that talking to a server of schema 4 left empty.
_ROWS = f"""
INSERT INTO steering (owner, turn_no, text, attachments, created_at) VALUES ('local', {_T}, 'faster', '[]', 1);
INSERT INTO writers VALUES ({_T}, 9, 'wrk_gone', 3, 1);
INSERT INTO owed VALUES ((SELECT max(turn_no) FROM turns), 'other', 'local', {_S}, 'h', '', 5, NULL);
INSERT INTO commits VALUES ({_S}, 'local', 'p', 'h', 'a', 'b', '[]', '', 0, 1, 2, 3, 4, 'no');
INSERT OR IGNORE INTO recalls VALUES ({_S}, 'local', 'Ü "recall"', 7);
INSERT INTO spendings VALUES ('local', 8, 'memory', 'm', '{{}}'), ('local', 8, 'memory', 'm', '{{}}');
INSERT INTO tombstones VALUES ('ses_gone', 'local', 9);
INSERT INTO requests VALUES ({_S}, 'key', 'local', 'digest', '{{}}', 9);
INSERT OR IGNORE INTO creations VALUES ('local', 'key', 'digest', {_S});
INSERT INTO checkpoints VALUES (NULL, 'chk_1', {_S}, {_T}, 'call_1', 1, 'call', 5, '', 'tree', '{{}}');
INSERT INTO workspaces VALUES ({_S}, 1, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES (3, 'cht_1', 'local', 'acc', 'telegram', 'private', '1', '', 'p', 't', NULL, 4, 5);
INSERT INTO inbox VALUES (4, 'inb_1', 'acc', 'u1', 3, 'received', 5, NULL, 0, '{{"text":"hi"}}', NULL, NULL);
INSERT INTO outbox VALUES (5, 'out_1', 3, 'acc', 'k', {_S}, {_T}, 6, 7);
INSERT INTO outbox_parts VALUES (6, 'prt_1', 5, 3, 'acc', 1, 'held', 'body', 2, 1, 0, 8, 9, 10, NULL, 'why');
INSERT INTO account_leases VALUES ('acc', NULL, 12);
INSERT INTO schedules VALUES (7, 'sch_1', 'local', 1, '{{}}', NULL, 9, NULL, 8, 10, 'paused', 11);
INSERT INTO occurrences VALUES (8, 'occ_1', 7, 9, 'ran', '', 0, {_T}, 10);
INSERT INTO jobs VALUES (9, 'job_1', {_S}, 'trn', 'call', 'running', 'make', '/w', NULL, 1, 'wake', NULL, 'boot', NULL,
  100, 5, NULL, 0, NULL, NULL, '', 0, NULL);
INSERT INTO budgets VALUES (10, 'bud_1', 'local', 'day', 'usd', '', NULL, NULL, 500, 'UTC', 0, 1, 0, 20, 0, 3, 0, 4);
INSERT INTO reservations VALUES ({_T}, 1, 1, 'c', 10, 1, 3);
INSERT INTO delegates VALUES (11, 'ses_d', 900, 'trn_d', 901, {_S}, 'trn_p', 'call', 1, {_S}, 'ses_r', {_T}, 'one', 1,
  NULL, '{{}}', 1, 0, NULL, 5, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO push_subscriptions VALUES (12, 'dev_1', 'local', 'webhook', 'n', '[]', 'sealed', 0, 'm', 3, 5, NULL, NULL, '');
INSERT INTO notifications VALUES (13, 'ntf_1', 5, 12, 'ask', 'cause', '{{}}', 'due', 6, 7);
INSERT INTO records VALUES ('local', 'test', 'Ω', '{{"größe": 1}}', 5), ('system', 'profile', 'writer@2', '{{}}', 6);
INSERT INTO workers VALUES ('wrk_gone', '/elsewhere', 1, 2, NULL);
"""
LARGE = bytes(range(256)) * 9000  # more than two pieces, in a pack of its own


async def make_folder(parent: Path) -> Path:
    """A data folder with rows in every table, bytes in packs old and new, notes and saved keys."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(parent, filter="data")
    home = parent / "data"
    async with open_store(data_dir=home) as store:
        await new_session(store, "Größe")
        gone = await new_session(store, "Gone")  # the highest number: it must not be given again
        await store.sessions.delete(ME, gone.id)
        await store.files.put(ME, "large.bin", "application/octet-stream", LARGE)
        await store.files.put(ME, "small.txt", "text/plain", b"small")
    database = apsw.Connection(str(home / "everturn.db"))
    database.execute("PRAGMA foreign_keys=OFF")
    database.execute(_ROWS)
    database.close()
    notes = home / "memory" / "local"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "Garden.md").write_text("- Roses are pruned in März\n")
    (home / "secrets.toml").write_text('[keys]\nopenai = "sk-test"\n')
    (home / "secrets.toml").chmod(0o600)
    return home


def dump(home: Path) -> dict[str, list[str]]:
    """Every row of every table of a data folder as text, without what belongs to a database or a machine."""
    database = apsw.Connection(str(home / "everturn.db"), flags=apsw.SQLITE_OPEN_READONLY)
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    own = {"meta", "moves", "workers"}
    tables = [name for name in names if "_index" not in name and not name.startswith("sqlite_")]
    found = {}
    for table in sorted(set(tables) - own):
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        kept = [name for name in columns if (table, name) not in _OF_THE_PLACE]
        chosen = ", ".join(f'"{name}"' for name in kept)
        found[table] = sorted(repr(row) for row in database.execute(f"SELECT {chosen} FROM {table}"))
    database.close()
    return found


def counter(home: Path) -> int:
    """The highest number of a session that was given."""
    database = apsw.Connection(str(home / "everturn.db"), flags=apsw.SQLITE_OPEN_READONLY)
    number = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'").get
    database.close()
    assert isinstance(number, int)
    return number


async def large_file(store: Store) -> str:
    """The id of the file with ``LARGE`` in it."""

    def find(tx: Tx) -> Script[str]:
        return next(file.id for file in (yield from FILES_ALL.all()) if file.name == "large.bin")

    return await store.database.read(find)


_OF_THE_PLACE = frozenset(
    {
        ("events", "seq"),
        ("packs", "path"),
        ("workspaces", "machine"),
        ("jobs", "machine"),
        ("sessions", "machine"),
    }
)
