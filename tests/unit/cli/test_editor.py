"""Which editor a person has."""

from __future__ import annotations

import pytest

from everturn.cli.editor import find_editor
from everturn.domain.errors import Invalid


def test_the_visual_editor_goes_before_the_other_and_both_may_have_options() -> None:
    assert find_editor({"EDITOR": "vim -c 'set nu'"}) == ["vim", "-c", "set nu"]
    assert find_editor({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert find_editor({"VISUAL": "", "EDITOR": "vi"}) == ["vi"]
    assert find_editor({}) == []


@pytest.mark.parametrize("name", ["VISUAL", "EDITOR"])
def test_an_editor_with_an_open_quotation_mark_is_refused_with_a_message(name: str) -> None:
    with pytest.raises(Invalid, match=f"{name} is not a valid command line: vim -c 'set nu") as caught:
        find_editor({name: "vim -c 'set nu"})
    assert f"unset {name}" in caught.value.hint
