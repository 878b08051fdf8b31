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
from typing import Any, TypeVar

import msgspec

from everturn.domain.errors import Invalid
from everturn.engine.settings import EngineSettings
from everturn.memory import MemorySettings
from everturn.memory.tool import MemoryTool
from everturn.models.settings import parse_settings
from everturn.store import StoreSettings
from everturn.tools.profiles import McpServer, Profile, Profiles, key_lines, parse_profiles
from everturn.tools.toolbox import TOOL_NAMES
from everturn.web.settings import WebSettings

T = TypeVar("T", bound=msgspec.Struct)

_log = logging.getLogger("everturn.config")

FILE = "config.toml"
# Tables that other rooms read and check themselves.
_OTHERS = frozenset({"profiles", "mcp", "models"})
_TOP = ("database_url", "database_direct_url", "host", "port", "password", "model")
_ENVIRONMENT = {f"EVERTURN_{name.upper()}": name for name in _TOP}
# Fields of the settings that the program fills in: not keys of the file.
_FILLED_IN = frozenset({"home", "page", "profiles", "system_prompt", "small_prompt", "short_prompts"})
# Settings that an earlier release took, and what to do instead. For one release they are ignored with a
# warning, so that an upgrade starts; after that they are unknown keys, which are errors.
_REMOVED: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("engine", "system_prompt"): "Set prompt in [profiles.default].",
        ("engine", "small_prompt"): "Set prompt in [profiles.pocket].",
        ("engine", "short_prompts"): "A prompt of your own has no short form; delete this line.",
        ("engine", "lease_s"): "Set lease_s in [store]: there is one lease.",
        ("server", "home"): "Set EVERTURN_HOME, or start with --home.",
    }
)


class Config(msgspec.Struct, frozen=True):
    """Everything a person has set, checked."""

    home: Path
    database_url: str | None
    database_direct_url: str | None
    model: str | None
    web: WebSettings
    engine: EngineSettings
    store: StoreSettings
    profiles: Profiles
    models: dict[str, Any]
    memory: MemorySettings


def home_of(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("EVERTURN_HOME") or "~/.everturn").expanduser()


def read_config(
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    password: str | None = None,
    model: str | None = None,
    database_url: str | None = None,
    database_direct_url: str | None = None,
    opens_browser: bool = False,
) -> Config:
    """Read and check the settings; a flag that is None was not given.

    A removed setting is logged as a warning and ignored. Raises Invalid.
    """
    environ = os.environ if environ is None else environ
    home = home_of(environ) if home is None else home
    reader = _Reader(home / FILE)
    top = reader.top()
    for variable, name in _ENVIRONMENT.items():
        if environ.get(variable):
            top[name] = environ[variable]
    flags = {
        "host": host,
        "port": port,
        "password": password,
        "model": model,
        "database_url": database_url,
        "database_direct_url": database_direct_url,
    }
    top.update({name: value for name, value in flags.items() if value is not None})
    web = reader.table("server")
    for name in ("host", "password"):
        if top.get(name) is not None:
            web[name] = top[name]
    if top.get("port") is not None:
        web["port"] = _port(top["port"])
    for name in ("trusted_proxies", "hosts"):
        if environ.get(f"EVERTURN_{name.upper()}"):
            web[name] = _words(environ[f"EVERTURN_{name.upper()}"])
    if environ.get("EVERTURN_BASE_PATH"):
        web["base_path"] = environ["EVERTURN_BASE_PATH"]
    if opens_browser:
        web["opens_browser"] = True
    engine = reader.table("engine")
    direct = {"direct_url": top["database_direct_url"]} if top.get("database_direct_url") else {}
    return Config(
        home=home,
        database_url=top.get("database_url"),
        database_direct_url=top.get("database_direct_url"),
        model=top.get("model"),
        web=reader.convert(WebSettings, "server", web, home=str(home)),
        engine=reader.convert(EngineSettings, "engine", engine),
        store=reader.convert(StoreSettings, "store", {**reader.table("store"), **direct}),
        profiles=reader.profiles(),
        models=reader.models(),
        memory=reader.convert(MemorySettings, "memory", reader.table("memory")),
    )


def _port(value: Any) -> int:
    if not re.fullmatch(r"\d{1,5}", str(value)) or not 0 <= int(value) <= 65_535:
        raise Invalid(
            f"The port is {value!r}.", hint="A port is a number from 0 to 65535; 0 takes any free one."
        )
    return int(value)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]


class _Reader:
    """One config file: its tables, and errors that name a line of it."""

    def __init__(self, path: Path) -> None:
        try:
            self.text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self.text = ""
        try:
            self._tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise Invalid(f"{FILE} cannot be read: {error}.", hint="Correct that line.") from error
        self._lines = dict(key_lines(self.text))
        for name in self._tables:
            if name not in {*_TOP, *_OTHERS, "server", "engine", "store", "memory"}:
                known = ", ".join(sorted({*_TOP, *_OTHERS, "server", "engine", "store", "memory"}))
                raise self._wrong((name,), "is not a key that is known here", f"Possible: {known}.")

    def top(self) -> dict[str, Any]:
        found = {name: self._tables[name] for name in _TOP if name in self._tables}
        for name, value in found.items():
            if not isinstance(value, int if name == "port" else str):
                raise self._wrong((name,), f"is {value!r}", "A text in quotes; the port is a number.")
        return found

    def raw(self, name: str) -> dict[str, Any]:
        table = self._tables.get(name, {})
        if not isinstance(table, dict):
            raise self._wrong((name,), "must be a table", f"Write [{name}].")
        return dict(table)

    def table(self, name: str) -> dict[str, Any]:
        """A table of settings, without those that were removed."""
        table = self.raw(name)
        for key in list(table):
            if instead := _REMOVED.get((name, key)):
                _log.warning(
                    "%s is not a setting any more and is ignored. %s", self._at((name, key)), instead
                )
                del table[key]
        return table

    def models(self) -> dict[str, Any]:
        """Checked here, where the lines are known; whoever opens the models reads it again."""
        found = self.raw("models")
        parse_settings(found, self._lines)
        return found

    def profiles(self) -> Profiles:
        for section, kind in (("profiles", Profile), ("mcp", McpServer)):
            known = sorted(set(kind.__struct_fields__) - {"name"})
            for name, table in self.raw(section).items():
                for key in table if isinstance(table, dict) else ():
                    if key not in kind.__struct_fields__:
                        hint = f"Possible: {', '.join(known)}."
                        raise self._wrong((section, name, key), "is not a key that is known here", hint)
        return parse_profiles(self.text, FILE, TOOL_NAMES | {MemoryTool.name})

    def convert(self, kind: type[T], section: str, table: dict[str, Any], **filled_in: Any) -> T:
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
                raise  # it came from the environment, which the hint names
            raise self._wrong(place, f"is wrong: {error.message.rstrip('.')}", error.hint) from error

    def _refuse_unknown(self, kind: type[Any], place: tuple[str, ...], table: dict[str, Any]) -> None:
        """Raises Invalid for a key that is no setting, in this table and in those inside it."""
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        known = sorted(fields.keys() - _FILLED_IN)
        for key, value in table.items():
            if key not in known:
                hint = f"Possible: {', '.join(known)}."
                raise self._wrong((*place, key), "is not a key that is known here", hint)
            inner = fields[key]
            if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                self._refuse_unknown(inner, (*place, key), value)

    def _wrong(self, key: tuple[str, ...], what: str, hint: str) -> Invalid:
        return Invalid(f"{self._at(key)} {what}.", hint=hint, line=self._lines.get(key), key=".".join(key))

    def _at(self, key: tuple[str, ...]) -> str:
        line = self._lines.get(key)
        where = f"{FILE}, line {line}" if line else FILE
        return f"{where}: {'.'.join(key)}"


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(f"settings of type {kind}")
