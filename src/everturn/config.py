"""Settings: ``config.toml`` in the data folder, then the environment, then flags. The last one wins.

Every mistake is an error that names the file, the line and the key, and says what is possible.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from everturn.backups.settings import BackupSettings
from everturn.delivery.settings import DeliverySettings, NotificationSettings
from everturn.domain.errors import Invalid
from everturn.domain.gateway import AccountSetup
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.settings import default_of, inner_struct, settings_of
from everturn.engine.budget_settings import BudgetSettings
from everturn.engine.settings import DelegateSettings, EngineSettings
from everturn.gateway.settings import check_name, read_setup
from everturn.jobs.settings import JobSettings
from everturn.memory.settings import MemorySettings
from everturn.models.settings import ModelsSettings, parse_settings
from everturn.store import StoreSettings, parse_address
from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.own.own_names import FOLDER as OWN_TOOLS
from everturn.tools.own.own_names import find_own_names
from everturn.tools.profiles import McpServer, Profile, Profiles, key_lines, parse_profiles
from everturn.tools.terminal.package_settings import PackageSettings
from everturn.tools.web.settings import SearchSettings
from everturn.tracing.settings import TraceSettings
from everturn.web.settings import WebSettings
from everturn.workspace.settings import FilesSettings

T = TypeVar("T", bound=msgspec.Struct)

_log = logging.getLogger("everturn.config")

FILE = "config.toml"
# Settings outside of every table; each also has an environment variable.
TOP: Mapping[str, str] = MappingProxyType(
    {
        "database_url": "Database address, postgresql://… Unset: SQLite in the data folder.",
        "database_direct_url": "PostgreSQL without the pooler in between, which LISTEN needs.",
        "host": "Address to listen on. Any address but loopback requires a password.",
        "port": "Port to listen on; 0 picks a free one.",
        "password": "Password for signing in. `everturn password` stores a hash instead.",
        "secret_key_file": "PostgreSQL: file with the secret key, if it is not in EVERTURN_SECRET_KEY.",
        "model": "Default model as provider:name. Unset: the first one found; else the pocket model.",
    }
)
# Tables whose settings are fields of a struct.
TABLES: Mapping[str, type[msgspec.Struct]] = MappingProxyType(
    {
        "server": WebSettings,
        "engine": EngineSettings,
        "store": StoreSettings,
        "files": FilesSettings,
        "memory": MemorySettings,
        "delivery": DeliverySettings,
        "notifications": NotificationSettings,
        "budget": BudgetSettings,
        "jobs": JobSettings,
        "delegates": DelegateSettings,
        "search": SearchSettings,
        "packages": PackageSettings,
        "traces": TraceSettings,
        "backup": BackupSettings,
    }
)
# Settings of [server] that have an environment variable of their own.
SERVER_ENVIRONMENT = ("trusted_proxies", "hosts", "base_path")
# Tables that other modules parse and check.
_PARSED_ELSEWHERE = frozenset({"profiles", "mcp", "models", "gateway"})
# Settings of an earlier release, and what to do instead. For one release they are ignored with a warning, so
# that an upgrade starts; after that they are unknown keys, which are errors.
_REMOVED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("engine", "system_prompt"): "Set prompt in [profiles.default].",
        ("engine", "small_prompt"): "Set prompt in [profiles.pocket].",
        ("engine", "short_prompts"): "A prompt of your own has no short form; delete this line.",
        ("engine", "lease_s"): "Set lease_s in [store]: there is one lease.",
        ("server", "home"): "Set EVERTURN_HOME, or start with --home.",
    }
)
# Settings of an earlier release whose value is fixed now; they are ignored like the ones above.
_FIXED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "server": frozenset(
            (
                "head_bytes_max",
                "head_timeout_s",
                "body_timeout_s",
                "stream_sessions_max",
                "send_timeout_s",
                "body_bytes_max",
                "streams_per_owner_max",
            )
        ),
        "engine": frozenset(
            (
                *("claim_batch_max", "retry_first_s", "retry_after_longest_s", "lease_margin_s", "poll_s"),
                *("take_over_s", "lost_poll_s", "index_s", "expire_s", "prune_s", "prune_grace_s", "sweep_s"),
                *("outstanding_bytes_max", "tool_output_events_per_s", "store_retry_s", "store_patience_s"),
                *("output_patience_s", "keep_messages_min", "summary_tokens_max", "title_chars_max"),
                *(
                    "title_timeout_s",
                    "stop_grace_s",
                    "drain_s",
                    "retry_longest_s",
                    "attachment_text_chars_max",
                ),
                *("cache.look_s", "cache.provider_keeps_s", "cache.provider_tokens_min"),
            )
        ),
        "store": frozenset(("recovery_attempts_max", "recovery_age_max_ms")),
        "files": frozenset(),
        "delivery": frozenset(),
        "notifications": frozenset(),
        "budget": frozenset(),
        "jobs": frozenset(),
        "delegates": frozenset(),
        "search": frozenset(),
        "traces": frozenset(),
        "backup": frozenset(),
        "memory": frozenset(
            (
                *("look_s", "observe_timeout_s", "close_timeout_s", "owing_max", "extraction_chars_max"),
                *("fact_chars_max", "commits_at_once", "recall_chars_max", "facts_per_commit_max"),
            )
        ),
    }
)


def former_settings() -> list[str]:
    """The names that are accepted and ignored for one release."""
    fixed = [f"{table}.{name}" for table, names in _FIXED.items() for name in names]
    return sorted([*fixed, *(".".join(place) for place in _REMOVED)])


class Config(msgspec.Struct, frozen=True):
    """All settings, checked."""

    home: Path
    database_url: str | None
    database_direct_url: str | None
    secret_key_file: Path | None
    model: str | None
    web: WebSettings
    engine: EngineSettings
    store: StoreSettings
    profiles: Profiles
    models: ModelsSettings
    memory: MemorySettings
    files: FilesSettings
    delivery: DeliverySettings = DeliverySettings()
    notifications: NotificationSettings = NotificationSettings()
    budget: BudgetSettings = BudgetSettings()
    jobs: JobSettings = JobSettings()
    delegates: DelegateSettings = DelegateSettings()
    search: SearchSettings = SearchSettings()
    packages: PackageSettings = PackageSettings()
    traces: TraceSettings = TraceSettings()
    backup: BackupSettings = BackupSettings()
    gateway: Mapping[str, AccountSetup] = MappingProxyType({})


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return f"EVERTURN_{name.upper()}"


def home_of(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("EVERTURN_HOME") or "~/.everturn").expanduser()


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """What a command or an embedding program sets itself. It wins over all else. None: not given."""

    host: str | None = None
    port: int | None = None
    model: str | None = None
    database_url: str | None = None
    database_direct_url: str | None = None
    opens_browser: bool = False


def read_config(
    home: Path | None = None, environ: Mapping[str, str] | None = None, flags: Flags | None = None
) -> Config:
    """Read and check the settings: flags before the environment before config.toml.

    A removed setting is logged as a warning and ignored. Raises Invalid.
    """
    environ = os.environ if environ is None else environ
    home = home_of(environ) if home is None else home
    reader = _Reader(home / FILE)
    top = reader.top()
    top.update({name: environ[variable_of(name)] for name in TOP if environ.get(variable_of(name))})
    given = msgspec.structs.asdict(flags or Flags())
    opens_browser = given.pop("opens_browser")
    top.update({name: value for name, value in given.items() if value is not None})
    web = reader.table("server")
    for name in ("host", "password"):
        if top.get(name) is not None:
            web[name] = top[name]
    if top.get("port") is not None:
        web["port"] = _port(top["port"])
    for name in SERVER_ENVIRONMENT:
        if value := environ.get(variable_of(name)):
            web[name] = value if name == "base_path" else _split_words(value)
    if opens_browser:
        web["opens_browser"] = True
    engine = reader.table("engine")
    files = reader.convert(FilesSettings, "files", reader.table("files"))
    if storage := environ.get("EVERTURN_FILES_URL"):
        files = msgspec.structs.replace(files, url=storage)
    reader.check_storage(files.url)
    direct = {"direct_url": top["database_direct_url"]} if top.get("database_direct_url") else {}
    return Config(
        home=home,
        database_url=top.get("database_url"),
        database_direct_url=top.get("database_direct_url"),
        secret_key_file=Path(top["secret_key_file"]).expanduser() if top.get("secret_key_file") else None,
        model=top.get("model"),
        web=reader.convert(WebSettings, "server", web, home=str(home)),
        engine=reader.convert(EngineSettings, "engine", engine),
        store=reader.convert(
            StoreSettings, "store", {**reader.table("store"), **direct}, files_url=files.url
        ),
        profiles=reader.profiles(),
        models=reader.models(),
        memory=reader.convert(MemorySettings, "memory", reader.table("memory")),
        files=files,
        delivery=reader.convert(DeliverySettings, "delivery", reader.table("delivery")),
        notifications=reader.convert(NotificationSettings, "notifications", reader.table("notifications")),
        budget=reader.convert(BudgetSettings, "budget", reader.table("budget")),
        jobs=reader.convert(JobSettings, "jobs", reader.table("jobs")),
        delegates=reader.convert(DelegateSettings, "delegates", reader.table("delegates")),
        search=reader.convert(SearchSettings, "search", reader.table("search")),
        packages=reader.convert(PackageSettings, "packages", reader.table("packages")),
        traces=reader.convert(TraceSettings, "traces", reader.table("traces")),
        backup=reader.convert(BackupSettings, "backup", reader.table("backup")),
        gateway=reader.gateway(),
    )


def _port(value: Json) -> int:
    if not re.fullmatch(r"\d{1,5}", str(value)) or not 0 <= int(value) <= 65_535:
        raise Invalid(
            f"The port is {value!r}.", hint="A port is a number from 0 to 65535; 0 takes any free one."
        )
    return int(value)


def _split_words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]


class _Reader:
    """One config file: its tables, and errors that name a line of it."""

    def __init__(self, path: Path) -> None:
        self._home = path.parent
        try:
            self.text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self.text = ""
        try:
            self._tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise Invalid(f"{FILE} cannot be read: {error}.", hint="Correct that line.") from error
        self._lines = dict(key_lines(self.text))
        known = sorted({*TOP, *TABLES, *_PARSED_ELSEWHERE})
        for name in self._tables:
            if name not in known:
                raise self._wrong((name,), "is not a known key", f"Possible: {', '.join(known)}.")

    def top(self) -> JsonObject:
        found = {name: self._tables[name] for name in TOP if name in self._tables}
        for name, value in found.items():
            if not isinstance(value, int if name == "port" else str):
                raise self._wrong((name,), f"is {value!r}", "A text in quotes; the port is a number.")
        return found

    def raw(self, name: str) -> JsonObject:
        table = self._tables.get(name, {})
        if not isinstance(table, dict):
            raise self._wrong((name,), "must be a table", f"Write [{name}].")
        return dict(table)

    def table(self, name: str) -> JsonObject:
        """A table of settings, without those of an earlier release, which are logged."""
        table = self.raw(name)
        for key in list(table):
            if instead := _REMOVED.get((name, key)):
                _log.warning("%s is no longer a setting and is ignored. %s", self._at((name, key)), instead)
                del table[key]
        self._drop_fixed(name, (), table)
        return table

    def _drop_fixed(self, name: str, inner: tuple[str, ...], table: JsonObject) -> None:
        for key, value in list(table.items()):
            place = (*inner, key)
            if ".".join(place) in _FIXED.get(name, ()):
                fixed = default_of(TABLES[name], ".".join(place))
                at = self._at((name, *place))
                _log.warning("%s is no longer a setting; the value %s is used.", at, fixed)
                del table[key]
            elif isinstance(value, dict):
                table[key] = dict(value)
                self._drop_fixed(name, place, table[key])

    def models(self) -> ModelsSettings:
        return parse_settings(self.raw("models"), self._lines)

    def gateway(self) -> Mapping[str, AccountSetup]:
        """The accounts. What belongs to a platform is checked when the account is opened."""
        return {name: self._account(name, table) for name, table in self.raw("gateway").items()}

    def _account(self, name: str, table: Json) -> AccountSetup:
        place = ("gateway", name)
        if not isinstance(table, dict):
            raise self._wrong(place, "must be a table", f"Write [gateway.{name}].")
        try:
            check_name(name)
            return read_setup(table)
        except Invalid as error:
            raise self._wrong(place, "cannot be an account's name", error.hint) from error
        except msgspec.ValidationError as error:
            found = re.search(r"\$\.(\w+)", str(error))
            where = (*place, found[1]) if found else place
            raise self._wrong(where, f"is wrong: {str(error).split(' - at')[0]}", "Correct it.") from error

    def profiles(self) -> Profiles:
        for section, kind in (("profiles", Profile), ("mcp", McpServer)):
            known = sorted(set(kind.__struct_fields__) - {"name"})
            for name, table in self.raw(section).items():
                for key in table if isinstance(table, dict) else ():
                    if key not in kind.__struct_fields__:
                        hint = f"Possible: {', '.join(known)}."
                        raise self._wrong((section, name, key), "is not a known key", hint)
        return parse_profiles(self.text, FILE, self._tool_names())

    def _tool_names(self) -> frozenset[str]:
        """The names of the built-in tools; with those of own tools, if a profile names another."""
        tables = [table for table in self.raw("profiles").values() if isinstance(table, dict)]
        lists = [found for table in tables if isinstance(found := table.get("tools"), list)]
        named = {name for names in lists for name in names if isinstance(name, str)}
        if named <= BUILT_IN_NAMES:
            return BUILT_IN_NAMES
        return BUILT_IN_NAMES | find_own_names(self._home / OWN_TOOLS)

    def check_storage(self, address: str | None) -> None:
        """Raises Invalid for a wrong address of object storage."""
        try:
            if address is not None:
                parse_address(address)
        except Invalid as error:
            what = f"is wrong: {error.message.rstrip('.')}"
            raise self._wrong(("files", "url"), what, error.hint) from error

    def convert(self, kind: type[T], section: str, table: JsonObject, **filled_in: object) -> T:
        self._refuse_unknown(kind, (section,), table)
        try:
            return msgspec.convert({**table, **filled_in}, kind, dec_hook=_decode)
        except msgspec.ValidationError as error:
            found = re.search(r"\$\.([\w.]+)", str(error))
            place = (section, *(found[1].split(".") if found else ()))
            raise self._wrong(place, f"is wrong: {str(error).split(' - at')[0]}", "Correct it.") from error
        except Invalid as error:
            place = (section, str(error.facts.get("key")))
            if place not in self._lines:
                raise  # the value came from the environment, which the hint names
            raise self._wrong(place, f"is wrong: {error.message.rstrip('.')}", error.hint) from error

    def _refuse_unknown(self, kind: type[msgspec.Struct], place: tuple[str, ...], table: JsonObject) -> None:
        """Raises Invalid for a key that is not a setting, in this table and in those inside it."""
        known = sorted({name.partition(".")[0] for name in settings_of(kind)})
        for key, value in table.items():
            if key not in known:
                hint = f"Possible: {', '.join(known)}."
                raise self._wrong((*place, key), "is not a known key", hint)
            inner = inner_struct(next(f.type for f in msgspec.structs.fields(kind) if f.name == key))
            if isinstance(value, dict) and inner is not None:
                self._refuse_unknown(inner, (*place, key), value)

    def _wrong(self, key: tuple[str, ...], what: str, hint: str) -> Invalid:
        return Invalid(f"{self._at(key)} {what}.", hint=hint, line=self._lines.get(key), key=".".join(key))

    def _at(self, key: tuple[str, ...]) -> str:
        line = self._lines.get(key)
        where = f"{FILE}, line {line}" if line else FILE
        return f"{where}: {'.'.join(key)}"


def _decode(kind: type, value: Json) -> object:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"settings of type {kind}")
