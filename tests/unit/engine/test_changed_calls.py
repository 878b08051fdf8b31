"""A call whose arguments the user changed before allowing it."""

import pytest

from everturn.domain import events as ev
from everturn.domain.errors import Invalid, WrongState
from everturn.domain.messages import Call, Outcome, Result
from everturn.domain.tool import Ruling, ToolQuestion, Verdict
from everturn.domain.turns import TurnState
from everturn.testing import CallTool, FakeTool
from everturn.testing.harness import OWNER, open_harness

pytestmark = pytest.mark.anyio

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
ASKED = [CallTool("wipe", {"path": "/srv"})]


def not_the_root(call, spec):
    path = call.arguments.get("path")
    if path == "/":
        return Ruling(Verdict.DENY, reason="it would remove everything", label=f"wipe {path}")
    return Ruling(Verdict.ASK, reason="it removes files", label=f"wipe {path}")


def opened(store, clock, *script, tool=None):
    tools = [tool or FakeTool("wipe", parameters=PARAMETERS)]
    return open_harness(store, *script, tools=tools, rules={"wipe": not_the_root}, clock=clock)


async def test_it_runs_as_changed_and_the_journal_holds_both(store, clock):
    wipe = FakeTool("wipe", parameters=PARAMETERS)
    async with opened(store, clock, ASKED, "Done.", tool=wipe) as h:
        session = await h.new_session()
        turn = await h.run(session)
        ask = await h.ask(session)
        await h.engine.answer(OWNER, ask.id, "once", by="ada", arguments='{"path": "/srv/old"}')
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert [call.arguments for call in wipe.calls] == [{"path": "/srv/old"}]
        payloads = {event.kind: event.payload for event in await h.events(session)}
        asked, resolved, started = (
            payloads[kind] for kind in ("approval.requested", "approval.resolved", "tool.started")
        )
        assert isinstance(asked, ev.ApprovalRequested)
        assert isinstance(resolved, ev.ApprovalResolved)
        assert isinstance(started, ev.ToolStarted)
        assert asked.arguments == '{"path": "/srv"}'
        assert (resolved.by, resolved.arguments) == ("ada", '{"path": "/srv/old"}')
        assert (started.arguments, started.label) == ('{"path": "/srv/old"}', "wipe /srv/old")


async def test_the_model_is_told_and_its_own_wish_is_left_as_it_was(store, clock):
    async with opened(store, clock, ASKED, "Done.") as h:
        session = await h.new_session()
        turn = await h.run(session)
        await h.engine.answer(
            OWNER, (await h.ask(session)).id, "once", by="ada", arguments='{"path": "/srv/old"}'
        )
        await h.settled(turn.id)
        parts = [part for message in h.model.requests[1].messages for part in message.parts]
        (wish,) = [part for part in parts if isinstance(part, Call)]
        (told,) = [part for part in parts if isinstance(part, Result)]
        assert wish.arguments == '{"path": "/srv"}'
        before, _, output = told.text.partition("<untrusted")
        assert "The user changed the arguments of this call" in before
        assert '{"path": "/srv/old"}' in before
        assert "done" in output
        (kept,) = [part for m in await h.messages(session) for part in m.parts if isinstance(part, Result)]
        assert (kept.text, kept.arguments) == ("done", '{"path": "/srv/old"}')


async def test_what_the_policy_denies_stays_denied(store, clock):
    wipe = FakeTool("wipe", parameters=PARAMETERS)
    async with opened(store, clock, ASKED, "Then not.", tool=wipe) as h:
        session = await h.new_session()
        turn = await h.run(session)
        await h.engine.answer(OWNER, (await h.ask(session)).id, "once", by="ada", arguments='{"path": "/"}')
        assert (await h.settled(turn.id)).state is TurnState.COMPLETED
        assert wipe.calls == []
        assert h.toolbox.ruled[-1].arguments == {"path": "/"}
        (told,) = [part for m in h.model.requests[1].messages for part in m.parts if isinstance(part, Result)]
        assert told.outcome is Outcome.DENIED
        assert "it would remove everything" in told.text
        assert "The user changed" in told.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "path is missing"),
        ('{"path": 5}', "path must be of type string"),
        ('{"path": "/a", "force": true}', "force is not taken"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_and_the_question_stays(store, clock, arguments, said):
    wipe = FakeTool("wipe", parameters=PARAMETERS)
    async with opened(store, clock, ASKED, "Done.", tool=wipe) as h:
        session = await h.new_session()
        await h.run(session)
        ask = await h.ask(session)
        with pytest.raises(Invalid, match=said):
            await h.engine.answer(OWNER, ask.id, "once", by="ada", arguments=arguments)
        assert (await h.ask(session)).id == ask.id, "it is still open"
        assert (await h.answer(session, "once")).state is TurnState.COMPLETED
        assert [call.arguments for call in wipe.calls] == [{"path": "/srv"}]


@pytest.mark.parametrize("decision", ["session", "always", "deny"])
async def test_only_once_can_be_said_about_a_changed_call(store, clock, decision):
    async with opened(store, clock, ASKED, "Done.") as h:
        session = await h.new_session()
        await h.run(session)
        ask = await h.ask(session)
        with pytest.raises(Invalid, match="only be allowed once"):
            await h.engine.answer(OWNER, ask.id, decision, by="ada", arguments='{"path": "/srv/old"}')
        assert h.toolbox.remembered == []
        assert (await h.ask(session)).id == ask.id


async def test_a_question_has_no_arguments_to_change(store, clock):
    async def asks(call, emit):
        return ToolQuestion("Which?", ("a", "b"))

    async with open_harness(store, [CallTool("ask")], "Ok.", tools=[FakeTool("ask", asks)], clock=clock) as h:
        session = await h.new_session()
        await h.run(session)
        with pytest.raises(WrongState):
            await h.engine.answer(OWNER, (await h.ask(session)).id, "a", by="ada", arguments="{}")
