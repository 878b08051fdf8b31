"""Edits the arguments of a call before it is allowed: in the user's editor, or on one line without one."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from everturn.cli.call_text import exact
from everturn.domain.environ import without_secrets
from everturn.domain.errors import Invalid


def find_editor(environ: Mapping[str, str]) -> list[str]:
    """The editor's command line; empty if none is named. Raises Invalid."""
    name = "VISUAL" if environ.get("VISUAL") else "EDITOR"
    try:
        return shlex.split(environ.get(name, ""))
    except ValueError as error:
        raise Invalid(
            f"{name} is not a valid command line: {environ[name]} ({error}).",
            hint=f"Close its quotation marks, or unset {name} to write on one line. Nothing was changed.",
        ) from error


async def edit_arguments(arguments: str, editor: list[str], ask_line: Callable[[str], Awaitable[str]]) -> str:
    """The edited arguments in the form of ``compact``. Raises Invalid."""
    pretty = msgspec.json.format(compact(arguments), indent=2)
    if editor:
        text = await _in_editor(editor, pretty)
    else:
        text = await ask_line(f"{exact(pretty).plain}\n  its arguments, as JSON on one line: ")
    return compact(text if text.strip() else arguments)


def compact(arguments: str) -> str:
    """The same arguments as compact JSON. Raises Invalid if they are not a JSON object."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments, type=dict[str, object])).decode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(
            f"These arguments are not a JSON object: {error}.", hint="Nothing was changed; edit it again."
        ) from error


async def _in_editor(editor: list[str], text: str) -> str:
    with tempfile.TemporaryDirectory(prefix="everturn-") as folder:  # its owner's alone
        path = Path(folder) / "arguments.json"
        path.write_text(text + "\n", encoding="utf-8")
        try:
            environ = without_secrets(os.environ)
            process = await asyncio.create_subprocess_exec(*editor, str(path), env=environ)
        except OSError as error:
            raise Invalid(
                f"The editor {editor[0]} cannot be started: {error.strerror}.",
                hint="Name another one in EDITOR. Nothing was changed.",
            ) from error
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:  # the question was withdrawn meanwhile
                process.terminate()
                await process.wait()
        if code != 0:
            raise Invalid(f"{editor[0]} ended with {code}.", hint="Nothing was changed; edit it again.")
        return path.read_text(encoding="utf-8", errors="replace")
