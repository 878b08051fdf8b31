"""The documentation site: it builds, its links lead somewhere, and reading it needs no network."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("material", reason="the site's generator is in requirements/docs.lock")
ROOT = Path(__file__).resolve().parents[3]
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src")}
NOT_LOADED = ("canonical", "prev", "next", "edit")  # kinds of <link> that a browser does not fetch


class _Page(HTMLParser):
    """The ids of a page, what it links to, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        for name in given:
            if (tag, name) in LOADED and given.get("rel") not in NOT_LOADED:
                self.loads.append(given[name])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, _Page]:
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return {path: _Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_place_on_it(pages: dict[Path, _Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_reading_it_loads_nothing_from_elsewhere(pages: dict[Path, _Page]) -> None:
    outside = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    assert outside == set()


def test_every_page_of_docs_is_in_the_site(pages: dict[Path, _Page]) -> None:
    names = {path.stem for path in pages}
    missing = {path.stem for path in (ROOT / "docs").rglob("*.md")} - names - {"README"}
    assert missing == set()


def test_the_first_page_says_what_it_is_about_and_names_pages_by_their_titles(
    pages: dict[Path, _Page],
) -> None:
    (first,) = (
        page for path, page in pages.items() if path.name == "index.html" and path.parent.name != "decisions"
    )
    assert "never loses a turn" in first.text
    assert "make serve" in first.text
    assert "Bringing your history: " in first.text
    assert ".md:" not in first.text
