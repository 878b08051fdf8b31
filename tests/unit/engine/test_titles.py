import pytest

from everturn.engine.titles import title_from


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('"A Cat in the Photo."', "A Cat in the Photo"),
        ("Title: Trip to Rome\n\nmore", "Trip to Rome"),
        ("\n\n**Bold words**", "Bold words"),
        ("", ""),
        ("  spaced   out\twords ", "spaced out words"),
    ],
)
def test_a_title_is_one_clean_line(text, title):
    assert title_from(text, 80) == title


def test_a_long_title_is_cut_at_a_word():
    assert title_from("one two three four", 12) == "one two…"
