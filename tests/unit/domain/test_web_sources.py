"""Which web pages count as sources of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.domain.messages import Outcome, Result
from everturn.domain.web_sources import SOURCES_MAX, sources_of


def result(display: Any, outcome: Outcome = Outcome.OK) -> Result:
    return Result("c1", "web", "…", outcome, display=display)


def fetched(url: str, title: str = "") -> Result:
    return result({"kind": "fetch", "url": url, "title": title})


def test_a_page_that_was_read_counts_once_and_one_that_failed_does_not() -> None:
    results = [
        fetched("https://a.example/", " A \n page"),
        fetched("https://a.example/", "again"),
        result({"kind": "fetch", "url": "https://b.example/"}, Outcome.ERROR),
        fetched("javascript:alert(1)"),
        result(None),
        result({"kind": "search", "hits": "none"}),
    ]
    assert sources_of(results, "") == [("https://a.example/", "A page")]


@pytest.mark.parametrize(
    ("answer", "is_named"),
    [
        ("See https://a.example/x", True),
        ("See https://a.example/x.", True),
        ("[it](https://a.example/x)", True),
        ("<https://a.example/x>, and so on", True),
        ("See https://a.example/xy", False),
        ("See https://a.example/x/y", False),
        ("See https://a.example/x.html", False),
        ("See https://a.example/xy and https://a.example/x!", True),
        ("nothing", False),
    ],
)
def test_a_result_of_a_search_counts_if_the_answer_names_its_whole_address(
    answer: str, is_named: bool
) -> None:
    hits = {"kind": "search", "hits": [{"url": "https://a.example/x", "title": "X"}, {"url": ""}, 3]}
    assert sources_of([result(hits)], answer) == ([("https://a.example/x", "X")] if is_named else [])


def test_there_is_a_bound() -> None:
    assert len(sources_of([fetched(f"https://a.example/{n}") for n in range(100)], "")) == SOURCES_MAX
