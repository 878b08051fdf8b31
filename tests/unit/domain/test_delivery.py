"""Values of delivery."""

from __future__ import annotations

import pytest

from everturn.domain.delivery import BUTTON_BYTES_MAX, Button


@pytest.mark.parametrize(
    "wrong",
    [{}, {"data": "a", "url": "https://example.com"}, {"data": "ä" * (BUTTON_BYTES_MAX // 2 + 1)}],
    ids=["neither", "both", "too long"],
)
def test_a_button_has_short_data_or_a_url(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="Allow"):
        Button("Allow", **wrong)
