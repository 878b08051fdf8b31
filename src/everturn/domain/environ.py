"""Environments of child processes. Another process of the same user can read them, so keys stay out."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|DATABASE|_PAT$|_DSN$", re.IGNORECASE)


def without_secrets(environ: Mapping[str, str], *, keeping: str = "") -> dict[str, str]:
    """The environment for a program of the user's own (browser, editor, pip), without what looks like a key.

    ``keeping`` is the beginning of names that stay, because they are that program's own settings. What a tool
    starts gets a list of named variables in its place: it runs what a model wrote.
    """
    return {
        name: value
        for name, value in environ.items()
        if (keeping and name.startswith(keeping)) or not _SECRET.search(name)
    }
