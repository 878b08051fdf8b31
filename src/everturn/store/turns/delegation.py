"""What the end of a turn means for delegates: a result if the turn is one's, a stop for its own."""

from __future__ import annotations

import msgspec

from everturn.domain.delegates import REPORT_CHARS_MAX, DelegateResult, shorten
from everturn.domain.fold import Folded
from everturn.domain.messages import Message, Role
from everturn.domain.sessions import SessionKind
from everturn.domain.turns import Failure, TurnState, Usage
from everturn.store.scripts.queries.delegates import DELEGATE, DELEGATE_OF_TURN, DelegateColumns
from everturn.store.scripts.queries.files import CHECKPOINT_LAST
from everturn.store.scripts.rows import SessionRow, TurnRow, to_json
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turn_files import files_of_turns


def end_delegates(
    tx: Tx,
    session: SessionRow,
    turn: TurnRow,
    state: TurnState,
    failure: Failure | None,
    folded: Folded | None = None,
) -> Script[None]:
    """Called in the transaction that ends a turn. A turn that completes leaves running what it did not wait
    for; any other end asks its delegates to stop."""
    if state is not TurnState.COMPLETED:
        yield q("delegates_stop", turn.id, tx.now)  # guard: e09
    if session.kind == SessionKind.DELEGATE:
        yield from _store_result(tx, session, turn, state, failure, folded)  # guard: e09


def _store_result(
    tx: Tx,
    session: SessionRow,
    turn: TurnRow,
    state: TurnState,
    failure: Failure | None,
    folded: Folded | None,
) -> Script[None]:
    row = yield from DELEGATE_OF_TURN.first(turn.no)
    if row is None or row.ended_at is not None:
        return
    messages = () if folded is None else folded.messages
    said = _last_words(messages)
    if failure is not None:
        said = "\n\n".join(filter(None, (failure.message, said)))
    last = yield from CHECKPOINT_LAST.first(session.no)
    files = yield from files_of_turns([turn.id])
    result = DelegateResult(
        state,
        text=shorten(said, REPORT_CHARS_MAX),
        is_tainted=_is_tainted(row, messages, failure),
        usage=Usage() if folded is None else folded.usage,
        tree=row.base if last is None else last.tree,
        files=files.get(turn.id),
    )
    yield q("delegate_end", turn.no, tx.now, to_json(result))


def _is_tainted(row: DelegateColumns, messages: tuple[Message, ...], failure: Failure | None) -> bool:
    """A failure's message can quote text from outside: what a server answered, the name of a file."""
    return (
        bool(row.is_tainted)
        or failure is not None  # guard: e09
        or any(one.brings_outside_text for one in messages)  # guard: e09
    )


def end_deleted_delegate(tx: Tx, session: SessionRow) -> Script[None]:
    """The same for a delegate whose session is deleted: its parent must not wait for ever."""
    if session.kind != SessionKind.DELEGATE:
        return
    row = yield from DELEGATE.first(session.id)
    if row is not None and row.ended_at is None:
        result = DelegateResult(TurnState.CANCELLED, text="Its session was deleted.")
        yield q("delegate_end", row.turn_no, tx.now, to_json(result))  # guard: e09


def _last_words(messages: tuple[Message, ...]) -> str:
    """The last answer; what was said before a tool call is not one if another text follows."""
    spoken = (message.text for message in reversed(messages) if message.role is Role.ASSISTANT)
    return next((text for text in spoken if text.strip()), "")


results: msgspec.json.Decoder[DelegateResult] = msgspec.json.Decoder(DelegateResult)
