"""Values of delivery."""

from __future__ import annotations

import pytest

from everturn.domain.delivery import BUTTON_BYTES_MAX, Button, NewPart, excerpt_of


@pytest.mark.parametrize(
    "wrong",
    [{}, {"data": "a", "url": "https://example.com"}, {"data": "ä" * (BUTTON_BYTES_MAX // 2 + 1)}],
    ids=["neither", "both", "too long"],
)
def test_a_button_has_short_data_or_a_url(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Allow"):
        Button("Allow", **wrong)


def test_an_excerpt_is_one_short_line_without_markup() -> None:
    assert excerpt_of(NewPart("It <b>ran</b>\n\nat 2 &lt; 3.", "HTML")) == "It ran at 2 < 3."
    assert excerpt_of(NewPart("if a < b and b > c")) == "if a < b and b > c"
    assert excerpt_of(NewPart(file_id="fil_1")) == ""
    assert len(excerpt_of(NewPart("word " * 100))) <= 160
