"""The head of a SKILL.md: what people write there is read, and YAML that bites is refused with the line."""

from __future__ import annotations

import pytest

from everturn.domain.errors import Invalid
from everturn.skills.front_matter import read_head


def fields(head: str) -> dict[str, str]:
    return dict(read_head(f"---\n{head}\n---\nbody", "SKILL.md", ("name", "description")).fields)


@pytest.mark.parametrize(
    ("head", "description"),
    [
        ("description: Care for backups.", "Care for backups."),
        ("description: Use when: the disk is full", "Use when: the disk is full"),
        ("description: no", "no"),
        ("description: 1.20", "1.20"),
        ("description: Sort photos  # by date", "Sort photos"),
        ("description: C# code", "C# code"),
        ('description: "with \\"quotes\\" and \\u00e9"', 'with "quotes" and é'),
        ("description: 'it''s'", "it's"),
        ("description: one\n  and two\nlicense: MIT", "one and two"),
        ("description: >-\n  one\n  two\n\n  three", "one two\n\nthree"),
        ("description: |\n  one\n    two", "one\n  two"),
        ("metadata:\n  author: me\n  tags: [a, b]\nallowed-tools:\n- x\ndescription: d", "d"),
        ("metadata: &a [*a, *a]\ndescription: d", "d"),
    ],
)
def test_a_description_is_read_as_it_was_meant(head: str, description: str) -> None:
    assert fields(head)["description"] == description


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("description: &a text", "line 2"),
        ("description: *a", "line 2"),
        ("description: !!python/object:os.system x", "line 2"),
        ("description: [a, b]", "line 2"),
        ("description:\n- a", "line 2"),
        ("name: a\nname: b", "line 3"),
        ("name: a\n\tdescription: b", "tab"),
        ("name: a\njust words", "line 3"),
        ('description: "open', "not closed"),
    ],
)
def test_what_yaml_would_make_into_something_else_is_refused(head: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        fields(head)
    assert caught.value.hint


def test_line_ends_and_marks_of_other_systems_do_not_matter() -> None:
    head = read_head("\ufeff---\r\nname: a\r\n---\r\nbody\r\n", "SKILL.md", ("name",))
    assert (head.fields, head.body) == ({"name": "a"}, "body\n")


def test_a_head_without_an_end_is_said() -> None:
    with pytest.raises(Invalid, match="no second line"):
        read_head("---\nname: a\n", "SKILL.md", ("name",))
