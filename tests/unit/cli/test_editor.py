"""Which editor a person has."""

from __future__ import annotations

import pytest

from everturn.cli.editor import editor_of
from everturn.domain.errors import Invalid


def test_the_visual_editor_goes_before_the_other_and_both_may_have_options() -> None:
    assert editor_of({"EDITOR": "vim -c 'set nu'"}) == ["vim", "-c", "set nu"]
    assert editor_of({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_of({"VISUAL": "", "EDITOR": "vi"}) == ["vi"]
    assert editor_of({}) == []


@pytest.mark.parametrize("name", ["VISUAL", "EDITOR"])
def test_an_editor_with_an_open_quotation_mark_is_refused_in_words(name: str) -> None:
    with pytest.raises(Invalid, match=f"{name} is no command line: vim -c 'set nu") as caught:
        editor_of({name: "vim -c 'set nu"})
    assert f"unset {name}" in caught.value.hint
