"""A session as an HTML file: what it shows, and that nothing in it can act."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

from everturn.domain.checkpoints import ChangeKind, FileChange
from everturn.domain.messages import (
    AnyPart,
    Attachment,
    Call,
    Message,
    Outcome,
    Reasoning,
    Result,
    Role,
    SavedFiles,
    Source,
    Text,
)
from everturn.domain.sessions import Session
from everturn.store.sessions.export_html import html

AT = 1_794_950_283_000  # 17 Nov 2026, 21:18 UTC
TURN = "trn_00000000000000000000000001"
NAMED = '</h1><img src=x onerror=alert(1)>\u202egpj.exe\x00"'
ATTRIBUTES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "href",
    "rel",
    "open",
    "start",
    "dir",
}
HOSTILE = """<script>alert(1)</script>

<img src=x onerror=alert(1)> <b>unclosed <a href="javascript:alert(1)">x</a>

[run](javascript:alert(1)) [run](JaVaScRiPt:alert(1)) [run](data:text/html;base64,PHNjcmlwdD4=) [up](vbscript:x)
[near](/etc/passwd) <javascript:alert(1)> [ref] [good](https://example.org/?a=1&b="2")

![pixel](https://example.org/pixel.png) ![inline](data:image/svg+xml;base64,PHN2Zz4=) ![plot](plot.png)

[ref]: javascript:alert(2)

```"><script>alert(1)</script>
</code></pre><script>alert(1)</script>
```

| a | b |
|--:|:-:|
| <iframe src=x> | `</td><script>` |

</div></main></body></html><!-- <style>body{display:none}</style>
"""


class Page(HTMLParser):
    """What a browser makes of the document."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def session(title: str = "Trip") -> Session:
    return Session("ses_00000000000000000000000001", "own", 1, 1, AT, AT, title=title)


def message(role: Role, *parts: AnyPart) -> Message:
    return Message(f"{TURN}-{len(parts)}", TURN, role, parts, AT)


def page(*messages: Message, title: str = "Trip") -> Page:
    return Page(html(session(title), list(messages)))


def test_an_answer_is_rendered_and_what_a_user_typed_is_not() -> None:
    answer = (
        "# Plan\n\n- [x] **bold** and ~~struck~~\n- two\n\n3. three\n\n| a | b |\n|--|--:|\n| 1 | 2 |\n\n"
    )
    answer += '```python\nif a < b:\n    print("x")\n```\n'
    source = html(
        session(),
        [message(Role.USER, Text("**not** bold")), message(Role.ASSISTANT, Text(answer))],
    )
    for written in (
        '<div class="plain">**not** bold</div>',
        "<h1>Plan</h1>",
        "<li>☑ <strong>bold</strong> and <s>struck</s></li>",
        '<ol start="3" dir="auto">',
        '<td>1</td>\n<td class="right">2</td>',
        "<pre><code>if a &lt; b:\n    print(&quot;x&quot;)</code></pre>",
        "<figcaption>python</figcaption>",
        "<h2>You <span>17 Nov 2026, 21:18 UTC</span></h2>",
        "<h2>Everturn <span>",
        "<title>Trip</title>",
    ):
        assert written in source
    assert Page(source).open == []


def test_hostile_text_stays_text_wherever_it_stands() -> None:
    everywhere = (
        message(Role.USER, Text(HOSTILE, source=Source(NAMED, NAMED)), Attachment("fil_1", NAMED, NAMED, 3)),
        message(Role.USER, SavedFiles((FileChange(NAMED, ChangeKind.CHANGED),), 2)),
        message(
            Role.ASSISTANT,
            Reasoning(HOSTILE),
            Text(HOSTILE),
            Text(HOSTILE, is_abandoned=True),
            Call("c1", NAMED, '{"command": "</code><script>alert(1)</script>\\u202e\\u0000"}'),
        ),
        message(Role.TOOL, Result("c1", NAMED, HOSTILE, Outcome.UNKNOWN, output=HOSTILE, arguments=HOSTILE)),
    )
    source = html(session(NAMED), list(everywhere))
    shown = Page(source)
    assert shown.open == []
    assert {tag for tag, _ in shown.tags}.isdisjoint(
        {"script", "img", "iframe", "b2", "base", "form", "link"}
    )
    assert len(shown.all("style")) == 1
    assert {name for _, attributes in shown.tags for name in attributes} <= ATTRIBUTES
    assert {link["href"] for link in shown.all("a")} == {
        "https://example.org/?a=1&b=%222%22",
        "https://example.org/pixel.png",
    }
    assert "\u202e" not in source
    assert "\x00" not in source
    assert "plot (plot.png)" in shown.words
    assert "near (/etc/passwd)" in shown.words
    assert shown.words.count("\\u202egpj.exe\\x00") >= 6


def test_the_document_allows_its_own_style_and_nothing_else() -> None:
    source = html(session(), [message(Role.ASSISTANT, Text("Hello."))])
    style = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    assert len(style) == 1
    digest = b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    policy = Page(source).all("meta")[1]
    assert policy == {
        "http-equiv": "Content-Security-Policy",
        "content": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    }
    assert "url(" not in style[0]
    assert "@import" not in style[0]


def test_calls_stand_with_their_outcomes_also_if_an_id_is_used_again() -> None:
    def ran(command: str, outcome: Outcome) -> tuple[Message, Message]:
        return (
            message(Role.ASSISTANT, Call("c0", "terminal", f'{{"command": "{command}"}}')),
            message(Role.TOOL, Result("c0", "terminal", f"ran {command}", outcome)),
        )

    source = html(session(), [*ran("one", Outcome.OK), *ran("two", Outcome.ERROR)])
    first, second = re.findall(r"<details.*?</details>", source, re.DOTALL)
    assert first.startswith("<details><summary><b>terminal</b> <code>one</code>")
    assert "Done" in first
    assert "ran one" in first
    assert second.startswith("<details open><summary><b>terminal</b> <code>two</code>")
    assert "Failed" in second
    assert "ran two" in second
    assert source.count("<article") == 1


def test_what_did_not_finish_and_what_cannot_be_read_is_shown_all_the_same() -> None:
    shown = page(
        message(
            Role.ASSISTANT,
            Call("c1", "terminal", '{"command": "half'),
            Call("c2", "deep", '{"a":' + "[" * 9999),
        ),
        message(Role.TOOL, Result("gone", "read_file", "its text", Outcome.DENIED)),
    )
    assert shown.words.count("Not finished") == 2
    assert '{"command": "half' in shown.words
    assert "read_file Denied" in shown.words
    assert "its text" in shown.words


def test_text_that_nests_deeply_is_not_cut() -> None:
    for text in ("> " * 200 + "deep", "- " * 200 + "deep"):
        assert text in page(message(Role.ASSISTANT, Text(text))).words


def test_the_pages_that_an_answer_rests_on_stand_below_it() -> None:
    hits = [
        {"title": "Named & <b>", "url": "https://example.org/a"},
        {"title": "Not named", "url": "https://example.org/b"},
        {"title": "Evil", "url": "javascript:alert(1)"},
    ]
    found = page(
        message(Role.USER, Text("Where?")),
        message(Role.ASSISTANT, Call("c1", "web_search", "{}"), Call("c2", "web_fetch", "{}")),
        message(
            Role.TOOL,
            Result("c1", "web_search", "…", display={"kind": "search", "hits": hits}),
            Result(
                "c2", "web_fetch", "…", display={"kind": "fetch", "url": "https://example.net/", "title": ""}
            ),
        ),
        message(Role.ASSISTANT, Text("See https://example.org/a. And javascript:alert(1).")),
    )
    links = [one["href"] for one in found.all("a") if one["rel"] == "noopener noreferrer"]
    assert links[-2:] == ["https://example.org/a", "https://example.net/"]
    assert "https://example.org/b" not in links
    assert "Sources" in found.words
    assert "Named & <b>" in found.words


def test_footnotes_and_formulas_are_drawn_and_load_nothing() -> None:
    said = (
        "Energy[^1] is $E = mc^2$, \\(a_1\\), and coffee costs $5 or $6.\n\n"
        "$$\n\\frac{1}{2} \\href{javascript:alert(1)}{\\text{<script>x</script>}}\n$$\n\n"
        "$\\undefined{$ and $" + "x" * 3000 + "$\n\n[^1]: As *written* <b>here</b>.\n"
    )
    written = html(session(), [message(Role.ASSISTANT, Text(said))])
    assert '<p>Energy<sup>1</sup> is <math display="inline">' in written
    assert "<msup><mi>c</mi><mn>2</mn></msup>" in written
    assert "<msub><mi>a</mi><mn>1</mn></msub>" in written
    assert "coffee costs $5 or $6." in written
    assert '<div class="math"><math display="block">' in written
    assert "<mfrac>" in written
    assert "javascript:" not in written
    assert "<script" not in written
    assert f"<code>{'x' * 3000}</code>" in written
    assert '<div class="note"><sup>1</sup><p>As <em>written</em> &lt;b&gt;here&lt;/b&gt;.</p>' in written


def test_lists_of_languages_that_run_to_the_left_have_their_marks_on_the_right() -> None:
    written = html(session(), [message(Role.ASSISTANT, Text("- שלום\n- עולם\n\n1. one\n"))])
    assert '<ul dir="auto">' in written
    assert '<ol dir="auto">' in written


def test_a_question_and_its_answer_are_part_of_the_conversation() -> None:
    call = Call("c0", "ask_user", '{"question": "Which <colour>?", "choices": ["Red", "Blue"]}')
    asked = message(Role.ASSISTANT, call)
    source = html(session(), [asked, message(Role.TOOL, Result("c0", "ask_user", "Blue"))])
    assert '<div class="plain">Which &lt;colour&gt;?</div>' in source
    assert '<div class="say"><div class="plain">Blue</div></div>' in source
    assert "<details" not in source
    stopped = html(session(), [asked, message(Role.TOOL, Result("c0", "ask_user", "", Outcome.CANCELLED))])
    assert "<i>Stopped</i>" in stopped


def test_columns_of_a_table_run_as_its_words_do() -> None:
    written = html(session(), [message(Role.ASSISTANT, Text("| שם | ערך |\n|---|---|\n| א | 1 |\n"))])
    assert '<table dir="auto">' in written
