"""The prompt library: texts with variables that a user sends by name, such as ``/weekly team=infra``.

A prompt counts as the user's own words. Its text becomes the message, so the transcript keeps what was sent
even if the prompt changes later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.json_types import Json
from everturn.domain.store import Records
from everturn.skills.content import check_name
from everturn.skills.front_matter import read_head
from everturn.tools.paths import FolderHandle
from everturn.tools.schema import ToolFailed

PROMPT: Final = "prompt"
_SEEN: Final = "prompt.seen"
FOLDER: Final = "prompts"  # of the data folder
TEXT_CHARS_MAX: Final = 32_000
_DESCRIPTION_CHARS_MAX: Final = 300
_FILES_MAX: Final = 500
_VALUE_CHARS_MAX: Final = 100_000
_VARIABLES_MAX: Final = 20
# {{topic}} or {{topic=a default}}
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]{0,39})\s*(?:=([^{}\n]{0,200}))?\}\}")
_ARGUMENT: Final = re.compile(r"""\s*([A-Za-z][A-Za-z0-9_]{0,39})=("(?:[^"\\]|\\.)*"|\S*)""")


class Variable(msgspec.Struct, frozen=True):
    """A variable. Without a ``default`` (None) a value is required."""

    name: str
    default: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    name: str
    text: str
    description: str = ""
    changed_at: int = 0
    is_from_file: bool = False

    @property
    def variables(self) -> tuple[Variable, ...]:
        return find_variables(self.text)


class MissingValues(Invalid):
    """A prompt needs values that were not given."""

    code = "values_missing"


def find_variables(text: str) -> tuple[Variable, ...]:
    """Return each variable once, in order of appearance, with the first default given."""
    found: dict[str, str | None] = {}
    for match in _VARIABLE.finditer(text):
        default = None if match[2] is None else match[2].strip()
        found[match[1]] = found.get(match[1]) if found.get(match[1]) is not None else default
    return tuple(Variable(name, default) for name, default in found.items())


def fill(prompt: Prompt, values: Mapping[str, str], rest: str = "") -> str:
    """Return the text with the values inserted. A value that looks like a variable is not expanded.

    ``rest`` is text that belongs to no variable; it is appended. Raises MissingValues, Invalid.
    """
    given = {one.name: values.get(one.name) or one.default for one in prompt.variables}
    if missing := [name for name, value in given.items() if value is None]:
        example = " ".join(f"{name}=…" for name in missing)
        raise MissingValues(
            f"The prompt {prompt.name} needs {', '.join(missing)}.", hint=f"Write /{prompt.name} {example}"
        )
    text = _VARIABLE.sub(lambda match: given[match[1]] or "", prompt.text).strip()
    return f"{text}\n\n{rest}" if rest else text


def fill_from_line(prompt: Prompt, line: str) -> str:
    """Fill the prompt from what the user typed after its name."""
    return fill(prompt, *read_line(prompt.variables, line))


def read_line(variables: Sequence[Variable], line: str) -> tuple[dict[str, str], str]:
    """Split a line into values and remaining text.

    ``name=value`` and ``name="some words"`` come first; what follows goes to the first variable without a
    value.
    """
    names = {one.name for one in variables}
    values: dict[str, str] = {}
    rest = line
    while (match := _ARGUMENT.match(rest)) and match[1] in names:
        value = match[2]
        if value.startswith('"') and value.endswith('"') and len(value) > 1:
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        values[match[1]] = value
        rest = rest[match.end() :]
    rest = rest.strip()
    free = next((one.name for one in variables if one.name not in values), None)
    if rest and free is not None:
        values[free], rest = rest, ""
    return values, rest


class PromptBook:
    """The prompts of each owner, stored as records that every worker can read.

    The files in the data folder belong to ``owner``. A changed file replaces the prompt of its name; edits
    made elsewhere do not change files.
    """

    def __init__(self, records: Records, clock: Clock, home: Path, *, owner: str, machine: str = "") -> None:
        self._records = records
        self._clock = clock
        self._home = home
        self._owner = owner
        self._machine = machine
        self._files: dict[str, tuple[int, int]] = {}  # imported files: size and time
        self.problems: dict[str, str] = {}  # files that cannot be read, and why

    async def list(self, owner: str) -> Sequence[Prompt]:
        await self._take_in(owner)
        found = await self._records.list(owner, PROMPT)
        return [msgspec.convert(value, Prompt) for value in found.values()]

    async def get(self, owner: str, name: str) -> Prompt:
        """Return one prompt. Raises NotFound."""
        await self._take_in(owner)
        value = await self._records.get(owner, PROMPT, name)
        if value is None:
            raise NotFound("prompt", name)
        return msgspec.convert(value, Prompt)

    async def save(self, owner: str, name: str, text: str, description: str = "") -> Prompt:
        """Raises Invalid."""
        return await self._put(owner, make_prompt(name, text, description))

    async def remove(self, owner: str, name: str) -> None:
        """Remove a prompt. Its file stays, and creates the prompt again when it changes. Raises NotFound."""
        if not await self._records.delete(owner, PROMPT, name):
            raise NotFound("prompt", name)

    async def _put(self, owner: str, prompt: Prompt) -> Prompt:
        prompt = msgspec.structs.replace(prompt, changed_at=self._clock.now_ms())
        await self._records.put(owner, PROMPT, prompt.name, msgspec.to_builtins(prompt))
        return prompt

    async def _take_in(self, owner: str) -> None:
        if owner != self._owner:
            return
        found = await anyio.to_thread.run_sync(_read_files, self._home.resolve(), self._files)
        for file, (signature, content) in found.items():
            try:
                prompt = _from_file(file, content)
            except Invalid as error:
                self.problems[file] = error.message
                self._files[file] = signature
                continue
            self.problems.pop(file, None)
            seen_name, seen = f"{prompt.name} {self._machine}", _record_of(prompt)
            if await self._records.get(owner, _SEEN, seen_name) != seen:
                await self._put(owner, msgspec.structs.replace(prompt, is_from_file=True))
                await self._records.put(owner, _SEEN, seen_name, seen)
            self._files[file] = signature


def make_prompt(name: str, text: str, description: str = "") -> Prompt:
    """Raises Invalid."""
    check_name(name, "prompt")
    text = text.strip()
    if not text:
        raise Invalid("The prompt is empty.", hint="Write its text.")
    if len(text) > TEXT_CHARS_MAX:
        raise Invalid(
            f"The prompt has {len(text):,} characters; the limit is {TEXT_CHARS_MAX:,}.", hint="Shorten it."
        )
    if "\0" in text or "\0" in description:
        raise Invalid("The prompt holds a NUL character.", hint="Remove it.")
    if len(find_variables(text)) > _VARIABLES_MAX:
        raise Invalid(f"The prompt has more than {_VARIABLES_MAX} variables.", hint="Use fewer.")
    return Prompt(name, text, " ".join(description.split())[:_DESCRIPTION_CHARS_MAX])


def _record_of(prompt: Prompt) -> Json:
    return {"text": prompt.text, "description": prompt.description}


def _from_file(file: str, content: bytes) -> Prompt:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not UTF-8 text.", hint="Save it as UTF-8.") from error
    head = read_head(text, file, ("description",))
    return make_prompt(file.removesuffix(".md"), head.body, head.fields.get("description", ""))


def _read_files(home: Path, known: Mapping[str, tuple[int, int]]) -> dict[str, tuple[tuple[int, int], bytes]]:
    """Return the files that changed since they were imported.

    Links out of the data folder are not followed.
    """
    folder = home / FOLDER
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".md")[:_FILES_MAX]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, tuple[tuple[int, int], bytes]] = {}
    with FolderHandle(folder) as handle:
        for name in names:
            try:
                what = (folder / name).stat()
                signature = (what.st_size, what.st_mtime_ns)
                if known.get(name) != signature:
                    found[name] = (signature, handle.read(name, TEXT_CHARS_MAX * 4))
            except (OSError, ToolFailed):
                continue  # gone meanwhile, or a link to somewhere else
    return found
