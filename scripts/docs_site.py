"""Hooks of mkdocs.yml: the pages of the repository's top folder become pages of the site.

Links between them and docs/ are rewritten; nothing is copied into docs/.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_PAGE_LINK = re.compile(r"\[[\w./]+\]\(([\w./]+\.md)\)")  # named by its file
_SMALL_PRINT = re.compile(r"<sub>.*?</sub>\n", re.DOTALL)  # about how the picture was made
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


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Links from docs/ to the top folder. The first page begins like the project's README."""
    if page.file.src_uri == "README.md":
        markdown = _first_page(markdown, Path(config.docs_dir))
    return _LINK.sub(lambda link: _to_top(link[1]), markdown)


def _first_page(order: str, docs: Path) -> str:
    """What Everturn is and how to run it, then the reading order with the pages' titles."""
    start = (docs.parent / "README.md").read_text(encoding="utf-8").partition("\n## Prove it")[0]
    start = _SMALL_PRINT.sub("", _LINK.sub(lambda link: _from_top(link[1]), start))
    order = order.replace("# Reading order", "## Reading order", 1)
    order = "\n".join(line for line in order.splitlines() if "(../README.md)" not in line)
    return f"{start}\n{_PAGE_LINK.sub(lambda link: _titled(link[1], docs), order)}"


def _titled(target: str, docs: Path) -> str:
    source = docs / target if (docs / target).exists() else docs.parent / Path(target).name
    title = source.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}]({target})"


def _to_top(target: str) -> str:
    up = "../" * target.count("../")
    name = target.removeprefix(up)
    if up and name in TOP:
        return up.removeprefix("../") + TOP[name]
    return "README.md" if target == "../README.md" else target
