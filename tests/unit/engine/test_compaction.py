"""Where a history may be cut."""

from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.messages import Call, Message, Result, Role, Summary, Text
from everturn.engine.compaction import split_history


def said(ident, role, *parts):
    return Message(id=ident, turn_id="t", role=role, parts=parts, created_at=0)


def user(n, size=100):
    return said(f"u{n}", Role.USER, Text("x" * size))


def answer(n, size=100):
    return said(f"a{n}", Role.ASSISTANT, Text("y" * size))


def used_tool(n):
    return [
        said(f"c{n}", Role.ASSISTANT, Call(f"k{n}", "look", "{}")),
        said(f"r{n}", Role.TOOL, Result(f"k{n}", "look", "z" * 100)),
    ]


def test_as_much_as_fits_is_kept():
    history = [m for n in range(10) for m in (user(n), answer(n))]
    cut = split_history(history, keep_tokens=140, keep_messages_min=2)
    assert [m.id for m in cut.kept] == ["u8", "a8", "u9", "a9"]
    assert cut.old[-1].id == "a7"


def test_a_cut_inside_a_long_turn_lies_after_results():
    history = [user(0), *used_tool(1), *used_tool(2), *used_tool(3)]
    cut = split_history(history, keep_tokens=120, keep_messages_min=1)
    assert cut.kept[0].id == "c2" or cut.kept[0].id == "c3"
    assert cut.old[-1].role is Role.TOOL


def test_there_is_nothing_to_summarise_in_one_message_or_behind_a_summary():
    assert split_history([user(0)], 10, 1) is None
    assert split_history([], 10, 1) is None
    summary = said("s", Role.SUMMARY, Summary("short", covers="x"))
    assert split_history([summary, user(1)], 10, 1) is None


def test_an_older_summary_goes_into_the_newer_one():
    summary = said("s", Role.SUMMARY, Summary("short", covers="x"))
    cut = split_history([summary, user(1), answer(1), user(2), answer(2)], 80, 2)
    assert [m.id for m in cut.old] == ["s", "u1", "a1"]


TURN = st.lists(st.sampled_from(["tool", "text"]), max_size=4)


@given(st.lists(TURN, min_size=1, max_size=5), st.integers(0, 600))
def test_no_cut_separates_a_call_from_its_result(turns, keep_tokens):
    history = []
    for number, steps in enumerate(turns):
        history.append(user(number))
        for place, kind in enumerate(steps):
            ident = f"{number}.{place}"
            history.extend(used_tool(ident) if kind == "tool" else [answer(ident)])
    cut = split_history(history, keep_tokens, 1)
    if cut is None:
        return
    assert [*cut.old, *cut.kept] == history
    for half in (cut.old, cut.kept):
        calls = {p.id for m in half for p in m.parts if isinstance(p, Call)}
        results = {p.call_id for m in half for p in m.parts if isinstance(p, Result)}
        assert calls == results
