"""Converts one file in a child process, because documents are untrusted and parsers have vulnerabilities.

Usage: python -I -m everturn.tools.documents.program KIND FILE

It sets its own limits in addition to the sandbox, which a machine may lack, and prints one ``Document`` as
JSON.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from everturn.tools.documents.document import TEXT_BYTES_MAX, Document, Section, split
from everturn.tools.documents.packed import PackedUnreadable
from everturn.tools.documents.pages import read_epub, read_html, read_mail, read_pdf, read_text
from everturn.tools.documents.sheets import read_xlsx
from everturn.tools.documents.word import read_docx, read_pptx

MEMORY_MIB = 1024
CPU_S = 100
_ENCRYPTED_OFFICE = b"\xd0\xcf\x11\xe0"  # an old container format, which new programs use for encrypted files


def _read_old(path: Path) -> Document:
    raise PackedUnreadable(
        "Files of this old format are not read. Save it in the new one (.docx, .xlsx, .pptx, .eml)."
    )


_READERS: dict[str, Callable[[Path], Document]] = {
    "docx": read_docx,
    "xlsx": read_xlsx,
    "pptx": read_pptx,
    "pdf": read_pdf,
    "epub": read_epub,
    "html": read_html,
    "mail": read_mail,
    "text": read_text,
    "old": _read_old,
}


def convert(kind: str, path: Path) -> Document:
    """Return the document as text, or with an error that says why it cannot be read."""
    try:
        with path.open("rb") as file:
            is_locked = file.read(4) == _ENCRYPTED_OFFICE and kind in ("docx", "xlsx", "pptx")
        if is_locked:
            raise PackedUnreadable("It is encrypted. Save it without a password, then attach it again.")
        found = _READERS[kind](path)
    except PackedUnreadable as error:
        return Document(error=str(error))
    except MemoryError:
        return Document(error=f"Reading it needs more than {MEMORY_MIB} MiB of memory.")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OSError) as error:
        # The boundary to the parsers: a hostile file can make them raise anything.
        return Document(error=f"It is damaged and cannot be read ({type(error).__name__}: {error}).")
    found = _within_bounds(found)
    if not found.sections and not found.error:
        return Document(error="There is no text in it.")
    return found


def _within_bounds(found: Document) -> Document:
    sections: list[Section] = []
    left = TEXT_BYTES_MAX
    for one in split(found.sections):
        # No store accepts surrogates, and PostgreSQL refuses NUL.
        text = one.text.replace("\0", "").encode("utf-8", "replace")
        left -= len(text) + 50
        if left < 0:
            note = (
                f"Only the first {TEXT_BYTES_MAX // 1_000_000} MB of text were kept; the rest was left out."
            )
            return msgspec.structs.replace(found, sections=tuple(sections), notes=(*found.notes, note))
        place = one.place.replace("\0", "").encode("utf-8", "replace").decode()
        sections.append(Section(place, text.decode()))
    title = found.title.replace("\0", "").encode("utf-8", "replace").decode()
    return msgspec.structs.replace(found, title=title, sections=tuple(sections))


def main() -> None:
    kind, path = sys.argv[1], Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MIB * 1024 * 1024,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.dup(1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):  # libraries print warnings
        os.dup2(quiet, fd)
    with os.fdopen(out, "wb") as answer:
        answer.write(msgspec.json.encode(convert(kind, path)))


if __name__ == "__main__":
    main()
