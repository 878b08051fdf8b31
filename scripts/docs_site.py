"""Hooks of mkdocs.yml: the pages of the repository's top folder become pages of the site.

Links between them and docs/ are rewritten; nothing is copied into docs/.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    root = Path(config.docs_dir).parent
    for source, page in TOP.items():
        text = _LINK.sub(lambda link: _from_top(link[1]), (root / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def _from_top(target: str) -> str:
    if target == "docs/decisions/":
        return "decisions/README.md"
    return TOP.get(target, target.removeprefix("docs/"))


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links from docs/ to the top folder; the project's own README is the site's first page."""
    return _LINK.sub(lambda link: _to_top(link[1]), markdown)


def _to_top(target: str) -> str:
    up = "../" * target.count("../")
    name = target.removeprefix(up)
    if up and name in TOP:
        return up.removeprefix("../") + TOP[name]
    return "README.md" if target == "../README.md" else target
