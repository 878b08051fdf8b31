"""Between which reasoning efforts one can choose, by the names of models. No provider's list says it.

A name that is not known here has none: asking for one would be a guess. The settings can name them
(``[models.settings]``, ``efforts``).
"""

from __future__ import annotations

import re

from everturn.domain.parameters import Effort

_OFF, _MINIMAL, _LOW, _MEDIUM, _HIGH = Effort
_USUAL = (_LOW, _MEDIUM, _HIGH)
Efforts = tuple[Effort, ...]


def openai_efforts(model: str) -> Efforts:
    """Of OpenAI's own models, and of the open ones, whatever serves them."""
    name = model.rsplit("/", 1)[-1].lower()
    if name.startswith("gpt-oss") or re.match(r"o[1-9](-mini|-\d{4}|$)", name):
        return _USUAL
    found = re.match(r"gpt-5(?:\.(\d+))?(?:-([a-z]+))?", name)
    if found is None or found[2] == "chat":
        return ()
    if found[2] == "pro":
        return (_HIGH,) if found[1] is None else (_MEDIUM, _HIGH)
    if found[2] == "codex":
        return _USUAL
    return (_MINIMAL, *_USUAL) if found[1] is None else (_OFF, *_USUAL)


def gemini_efforts(model: str) -> Efforts:
    found = re.match(r"gemini-(\d+)(?:\.(\d+))?-(pro|flash)", model.rsplit("/", 1)[-1].lower())
    if found is None or re.search(r"image|tts|live|audio|embedding", model):
        return ()
    version, kind = (int(found[1]), int(found[2] or 0)), found[3]
    if version < (2, 5):
        return ()
    if version < (3, 0):
        return (_OFF, *_USUAL) if kind == "flash" else _USUAL
    if kind == "flash":
        return (_MINIMAL, *_USUAL)
    return _USUAL if version > (3, 0) else (_LOW, _HIGH)


def anthropic_efforts(version: tuple[int, int] | None) -> Efforts:
    return (_OFF, *_USUAL) if version is not None and version >= (3, 7) else ()
