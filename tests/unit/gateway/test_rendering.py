"""Answers as a platform shows them: converted, split at sensible places, nothing lost."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.gateway.blocks import parse_blocks
from everturn.gateway.dialects import Dialect
from everturn.gateway.rendering import is_boundary, length_of, render

_FAMILY = "👩‍👩‍👧‍👦"
_SIGNS = [*"abc .,*_`#<>&|[]()-\n", "e\u0301", "ש", "日", "👍🏽", _FAMILY, "🇩🇪"]
_words = st.lists(st.sampled_from(_SIGNS), max_size=400).map("".join)
_code = st.text(st.sampled_from([*"ab <&`\n"]), max_size=300).map(lambda text: f"\n\n````\n{text}\n````\n\n")
_markdown = st.lists(st.one_of(_words, _code), max_size=8).map("".join)


class _Visible(HTMLParser):
    """The text of Telegram's HTML; fails on a tag that it does not know or that is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in {"b", "i", "s", "code", "pre", "a", "blockquote"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _letters(text: str) -> str:
    return re.sub(r"\s", "", text)


def _content(markdown: str) -> str:
    """What a reader has to see: blocks without any text are left out, with their bullet."""
    texts = ((block.mark, "".join(run.text for run in block.runs)) for block in parse_blocks(markdown))
    return "".join(mark + text for mark, text in texts if text.strip())


@given(_markdown, st.integers(200, 600), st.sampled_from(list(Dialect)))
def test_no_message_is_longer_than_the_limit(markdown: str, limit: int, dialect: Dialect) -> None:
    assert all(0 < length_of(message) <= limit for message in render(markdown, dialect, limit))


@given(_markdown, st.integers(200, 600))
def test_telegram_gets_whole_tags_and_the_whole_text(markdown: str, limit: int) -> None:
    shown = "".join(_Visible(message).text for message in render(markdown, Dialect.TELEGRAM, limit))
    assert _letters(shown) == _letters(_content(markdown))


@given(_markdown, st.integers(200, 600), st.sampled_from(list(Dialect)))
def test_no_character_is_cut_in_two(markdown: str, limit: int, dialect: Dialect) -> None:
    parts = render(markdown, dialect, limit)
    for part, following in pairwise(parts):
        assert is_boundary(part[-1] + following[0], 1)


@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        (
            Dialect.TELEGRAM,
            '<b>a</b> <i>b</i> <s>c</s> <code>d&lt;</code> <a href="https://e.f/?g&amp;h">i</a> &lt;j&gt;',
        ),
        (Dialect.SLACK, "*a* _b_ ~c~ `d&lt;` <https://e.f/?g&amp;h|i> &lt;j&gt;"),
        (Dialect.DISCORD, r"**a** *b* ~~c~~ `d<` [i](<https://e.f/?g&h>) \<j\>"),
        (Dialect.PLAIN, "a b c d< i (https://e.f/?g&h) <j>"),
    ],
)
def test_each_platform_gets_its_own_signs(dialect: Dialect, shown: str) -> None:
    assert render("**a** *b* ~~c~~ `d<` [i](https://e.f/?g&h) <j>", dialect, 4096) == [shown]


def test_a_table_is_shown_in_columns() -> None:
    [shown] = render("| name | n |\n|---|--:|\n| 日本 | 1 |\n| b | 22 |", Dialect.SLACK, 4096)
    assert shown == "```\nname   n\n────  ──\n日本   1\nb     22\n```"


def test_code_that_fits_into_one_message_is_not_cut() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    messages = render(f"{'word ' * 30}\n\n```py\n{code}\n```\n\n{'word ' * 30}", Dialect.DISCORD, 250)
    assert f"```py\n{code}\n```" in messages


def test_longer_code_is_cut_between_lines_and_stays_code() -> None:
    lines = [f"line {number}" for number in range(100)]
    messages = render("```py\n" + "\n".join(lines) + "\n```", Dialect.DISCORD, 300)
    assert all(message.startswith("```py\n") and message.endswith("\n```") for message in messages)
    shown = [line for message in messages for line in message.split("\n")[1:-1]]
    assert shown == lines


def test_text_is_cut_after_a_sentence() -> None:
    messages = render("This is a sentence. " * 40, Dialect.PLAIN, 210)
    assert all(message.rstrip().endswith("sentence.") for message in messages)


def test_a_style_goes_on_in_the_next_message() -> None:
    messages = render(f"**{'word ' * 100}end**", Dialect.TELEGRAM, 250)
    assert len(messages) > 1
    assert all(message.startswith("<b>") and message.rstrip().endswith("</b>") for message in messages)


def test_markup_of_a_model_stays_text() -> None:
    [shown] = render('<a href="tg://user?id=1">x</a> [y](javascript:alert(1))', Dialect.TELEGRAM, 4096)
    assert _Visible(shown).text == '<a href="tg://user?id=1">x</a> [y](javascript:alert(1))'


def test_an_address_that_is_no_web_address_is_not_linked() -> None:
    assert render("[notes](notes/today.md)", Dialect.TELEGRAM, 4096) == ["notes"]


def test_three_backticks_do_not_end_code() -> None:
    [shown] = render("````\n```\n@everyone\n````", Dialect.DISCORD, 4096)
    assert shown.count("```") == 2


def test_nothing_to_say_is_no_message() -> None:
    assert render(" \n\n ", Dialect.SLACK, 4096) == []


def test_text_that_is_nested_too_deep_is_shown_as_it_is() -> None:
    assert "end" in "".join(render("> " * 500 + "end", Dialect.TELEGRAM, 4096))
