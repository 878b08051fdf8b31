"""A command loads only the rooms that it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from everturn.domain.lazy import lazy_names

ROOMS = ("delivery", "engine", "gateway", "memory", "models", "store", "tools", "web", "workspace")


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_door_is_loaded_from_its_module(room: str) -> None:
    door = import_module(f"everturn.{room}")
    find = lazy_names(f"everturn.{room}")
    assert [name for name in door.__all__ if getattr(door, name) is not find(name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Motor'"):
        lazy_names("everturn.engine")("Motor")


def loaded_by(module: str) -> set[str]:
    look = f"import sys, {module}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.mark.parametrize("command", ["sessions", "export", "token", "password", "backup", "doctor"])
def test_a_command_without_a_model_loads_no_engine_and_no_http_client(command: str) -> None:
    loaded = loaded_by(f"everturn.cli.{command}")
    assert not loaded & {"everturn.engine.engine", "everturn.web.web", "everturn.models.registry", "httpx2"}


def test_the_settings_are_read_without_the_rooms_that_they_configure() -> None:
    loaded = loaded_by("everturn.config")
    assert not loaded & {"apsw", "httpx2", "tree_sitter", "everturn.tools.toolbox", "everturn.memory.memory"}
    assert not loaded & {"everturn.workspace.scan", "everturn.delivery.account", "everturn.store.store"}


def test_no_name_of_a_door_is_a_module_too() -> None:
    """It would mean the module once that is imported, and before that the name."""
    for room in ROOMS:
        door = import_module(f"everturn.{room}")
        assert not [name for name in door.__all__ if find_spec(f"everturn.{room}.{name}")]
