"""What the model is given: a pure function of the transcript, the turn so far and the model's abilities.

The result is valid whenever a crash happened: every call has one result and every result its call; abandoned
text and other models' reasoning are left out. Equal inputs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from everturn.domain.fold import UNKNOWN_TEXT
from everturn.domain.media import document_kind
from everturn.domain.messages import (
    AnyPart,
    Attachment,
    Call,
    Message,
    NewerPart,
    Outcome,
    Reasoning,
    Result,
    Role,
    SavedFiles,
    Source,
    Summary,
    Text,
    UsedSkill,
)
from everturn.domain.model import Abilities, ModelRequest, ToolSchema
from everturn.domain.pictures import names_files, pictures_of, with_pictures
from everturn.engine.file_notes import list_saved

_CHARS_PER_TOKEN = 3.6
_MESSAGE_TOKENS = 6
_IMAGE_TOKENS = 1200
_NAME_CHARS_MAX = 80
_OPEN = "<untrusted from={name!r}>"
_CLOSE = "</untrusted>"
_CHANGED = "[The user changed the arguments of this call before allowing it. They were: {arguments}]"


class Prefix(msgspec.Struct, frozen=True):
    """What comes before the messages and stays byte-identical from turn to turn."""

    system: str
    tools: tuple[ToolSchema, ...] = ()
    recalled: str = ""  # what memory has for this session; it stands before the first message


class Shown(msgspec.Struct, frozen=True):
    """A history in the form for one model. Kept between turns, so that only new messages are converted."""

    model: str
    abilities: Abilities
    count: int  # of the messages it was made of, and the last of them: what tells one history from another
    last: Message | None
    has_files: bool  # what the model sees of them depends on what else is attached: shaped anew each time
    messages: tuple[Message, ...]
    tokens: int

    def begins(self, history: Sequence[Message], model: str, abilities: Abilities) -> bool:
        """True if the history starts with this one and is for the same model."""
        return (
            not self.has_files
            and 0 < self.count <= len(history)
            and history[self.count - 1] is self.last
            and self.model == model
            and self.abilities == abilities
            and all(message.role is not Role.SUMMARY for message in history[self.count :])
        )


def show(
    history: Sequence[Message],
    *,
    model: str,
    abilities: Abilities,
    files: Mapping[str, bytes] | None = None,
    before: Shown | None = None,
) -> Shown:
    """Convert the history for a model. ``before``: an earlier result, reused if the history extends it."""
    known = before if before is not None and before.begins(history, model, abilities) else None
    new = history[known.count :] if known is not None else since_summary(history)
    messages: list[Message] = [] if known is None else list(known.messages)
    tokens = 0 if known is None else known.tokens
    for message in _pair_calls(new):
        shaped = _shape(message, model, abilities, files or {})
        if shaped is not None:
            tokens += tokens_of(shaped)
            if shaped is not message and messages and _is_note(message):
                messages[-1] = _put_before(shaped, messages[-1])
            else:
                messages.append(shaped)
    has_files = any(names_files(part) for message in new for part in message.parts)
    last = history[-1] if history else None
    return Shown(model, abilities, len(history), last, has_files, tuple(messages), tokens)


def _is_note(message: Message) -> bool:
    return type(message.parts[0]) in (SavedFiles, UsedSkill)


def _put_before(note: Message, said: Message) -> Message:
    """The user's message with a note in front of it: the words come last, because models answer those."""
    return msgspec.structs.replace(said, parts=(*note.parts, *said.parts))


def build_request(
    prefix: Prefix,
    shown: Shown,
    *,
    files: Mapping[str, bytes] | None = None,
    continue_from: str = "",
    output_tokens_max: int | None = None,
) -> ModelRequest:
    """The request for one model call."""
    abilities = shown.abilities
    seen = files if files and abilities.images else {}
    return ModelRequest(
        system=prefix.system,
        messages=_with_recalled(shown.messages, prefix.recalled),
        tools=prefix.tools if abilities.tools else (),
        prefix=continue_from,
        files={key: data for key, data in seen.items() if _is_shown(key, shown.messages)},
        output_tokens_max=output_tokens_max,
    )


def _with_recalled(messages: tuple[Message, ...], recalled: str) -> tuple[Message, ...]:
    """Not in the system prompt, which all sessions of a key share byte for byte."""
    if not recalled or not messages or messages[0].role is not Role.USER:
        return messages
    first = messages[0]
    parts: tuple[AnyPart, ...] = (Text(recalled), *first.parts)
    return (msgspec.structs.replace(first, parts=parts), *messages[1:])


def since_summary(history: Sequence[Message]) -> list[Message]:
    """The newest summary, then what follows the message it covers, wherever the summary itself stands."""
    newest = next((m for m in reversed(history) if m.role is Role.SUMMARY), None)
    if newest is None:
        return list(history)
    covered = {part.covers for part in newest.parts if isinstance(part, Summary)}
    start = next((i + 1 for i, m in enumerate(history) if m.id in covered), None)
    if start is None:
        # The covered message is older than what was read: everything read follows it.
        start = 0
    return [newest, *(m for m in history[start:] if m.role is not Role.SUMMARY)]


def _pair_calls(history: Iterable[Message]) -> Iterable[Message]:
    """Yield the history with a result for every call and without results that have no call."""
    open_calls: dict[str, Call] = {}
    for message in history:
        if not open_calls and _is_plain(message):
            last = message
            yield message
            continue
        if open_calls and message.role is not Role.TOOL:
            yield _unknown(message, open_calls)
            open_calls = {}
        if message.role is Role.TOOL:
            parts = [
                part for part in message.parts if isinstance(part, Result) and part.call_id in open_calls
            ]
            for part in parts:
                del open_calls[part.call_id]
            lacking: list[AnyPart] = [_no_result(call) for call in open_calls.values()]
            open_calls = {}
            if parts or lacking:
                yield msgspec.structs.replace(message, parts=(*parts, *lacking))
            continue
        open_calls = {part.id: part for part in message.parts if isinstance(part, Call)}
        yield message
        last = message
    if open_calls:
        yield _unknown(last, open_calls)


def _is_plain(message: Message) -> bool:
    """True if the message is plain text, which every model takes as it is. Nearly all messages are, so in a
    long session this check dominates the cost of a warm turn."""
    parts = message.parts
    if len(parts) != 1 or type(parts[0]) is not Text or message.role is Role.TOOL:
        return False
    text = parts[0]
    is_own = text.source is None or text.source.is_trusted
    return bool(text.text) and not text.is_abandoned and is_own and message.role is not Role.SUMMARY


def _unknown(after: Message, calls: Mapping[str, Call]) -> Message:
    return Message(
        id=after.id,
        turn_id=after.turn_id,
        role=Role.TOOL,
        parts=tuple(_no_result(call) for call in calls.values()),
        created_at=after.created_at,
    )


def _no_result(call: Call) -> Result:
    return Result(call.id, call.name, UNKNOWN_TEXT, Outcome.UNKNOWN)


def _shape(message: Message, model: str, abilities: Abilities, files: Mapping[str, bytes]) -> Message | None:
    """The message in the form for this model; None if nothing is left of it."""
    if _is_plain(message):
        return message
    parts: list[AnyPart] = []
    for part in message.parts:
        parts.extend(_shape_part(part, model, abilities, files))
    if not parts:
        return None
    if message.role is Role.SUMMARY:
        return msgspec.structs.replace(message, role=Role.USER, parts=tuple(parts))
    if tuple(parts) == message.parts:
        return message
    return msgspec.structs.replace(message, parts=tuple(parts))


def _shape_part(
    part: AnyPart, model: str, abilities: Abilities, files: Mapping[str, bytes]
) -> Iterable[AnyPart]:
    match part:
        case Text(is_abandoned=True) | Text(text=""):
            return ()
        case Text(source=Source(is_trusted=False) as source):
            name = " ".join(source.sender.split())[:_NAME_CHARS_MAX] or "another person"
            return (Text(f"[Message from {name}, who is not the user]\n{part.text}"),)
        case Reasoning():
            # Providers refuse or ignore reasoning without a signature or with another model's.
            is_wanted = part.opaque is not None and part.model == model and not part.is_abandoned
            return (part,) if is_wanted else ()
        case Result():
            return (_mention_change(mark_untrusted(_without_output(_with_seen(part, abilities, files)))),)
        case Attachment():
            return (_show_attachment(part, abilities, files),)
        case Summary():
            return (Text("What was said before, in short:\n" + part.text),)
        case SavedFiles():
            listed = _mark("workspace", list_saved(part))
            return (Text(f"[Files that the user saved or changed since the last turn]\n{listed}"),)
        case UsedSkill():
            begin = f"[The user asks you to use the skill {part.name}, version {part.digest[:12]}]"
            return (Text(f"{begin}\n{part.text}\n[End of the skill {part.name}]"),)
        case NewerPart():
            return ()
        case _:
            return (part,)


def _with_seen(result: Result, abilities: Abilities, files: Mapping[str, bytes]) -> Result:
    """The result with the pictures that this model is given."""
    if not pictures_of(result):
        return result
    return with_pictures(result, files if abilities.images else ())


def _without_output(result: Result) -> Result:
    """Drop what a call printed before it was cut off: it is shown to the user, but a model would take it for
    the result."""
    return result if result.output is None else msgspec.structs.replace(result, output=None)


def mark_untrusted(result: Result) -> Result:
    """Put untrusted output between markers that it cannot close itself."""
    if not result.is_untrusted:
        return result
    return msgspec.structs.replace(result, text=_mark(result.name, result.text))


def _mark(source: str, text: str) -> str:
    inside = text.replace("</untrusted", "<\u200b/untrusted")
    return f"{_OPEN.format(name=source)}\n{inside}\n{_CLOSE}"


def _mention_change(result: Result) -> Result:
    """Add to the result that the user changed the arguments: the call shows the model's own ones."""
    if result.arguments is None:
        return result
    said = _CHANGED.format(arguments=result.arguments)
    return msgspec.structs.replace(result, text=f"{said}\n{result.text}")


def _show_attachment(part: Attachment, abilities: Abilities, files: Mapping[str, bytes]) -> AnyPart:
    content = files.get(part.file_id)
    if part.media_type.startswith("image/") and abilities.images and content is not None:
        return part
    if content is not None and is_text(part.media_type, part.name):
        text = content.decode("utf-8", "replace")
        return Text(f"[Attached file {part.name}]\n{_mark(part.name, text)}")
    why = "an image that this model cannot see" if part.media_type.startswith("image/") else part.media_type
    return Text(f"[Attached: {part.name}, {part.size:,} bytes, {why}]")


def is_text(media_type: str, name: str) -> bool:
    """True if the model is given the file's text. That of a document is extracted first."""
    return (
        media_type.startswith("text/")
        or media_type
        in (
            "application/json",
            "application/xml",
            "application/toml",
            "application/x-yaml",
            "application/javascript",
        )
        or document_kind(name, media_type) is not None
    )


def _is_shown(file_id: str, messages: Iterable[Message]) -> bool:
    return any(
        (isinstance(part, Attachment) and part.file_id == file_id)
        or (isinstance(part, Result) and any(one.id == file_id for one in pictures_of(part)))
        for message in messages
        for part in message.parts
    )


# --- how much it is -----------------------------------------------------------------------------------


def estimate_tokens(prefix: Prefix, shown: Shown | None = None, continue_from: str = "") -> int:
    """A conservative estimate of a request's size, for the context budget."""
    tools = prefix.tools if shown is None or shown.abilities.tools else ()
    described = sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in tools)
    head = len(prefix.system) + len(prefix.recalled) + described + len(continue_from)
    return round(head / _CHARS_PER_TOKEN) + (shown.tokens if shown is not None else 0)


def estimate_plain(request: ModelRequest) -> int:
    """The same for a request without tools."""
    return round(len(request.system) / _CHARS_PER_TOKEN) + sum(map(tokens_of, request.messages))


def tokens_of(message: Message) -> int:
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return round(len(parts[0].text) / _CHARS_PER_TOKEN) + _MESSAGE_TOKENS
    chars = 0
    images = 0
    for part in message.parts:
        match part:
            case Result(text=text):
                chars += len(text)
                images += len(pictures_of(part))
            case Text(text=text) | Summary(text=text) | Reasoning(text=text):
                chars += len(text)
            case Call():
                chars += len(part.name) + len(part.arguments)
            case Attachment():
                images += part.media_type.startswith("image/")
    return round(chars / _CHARS_PER_TOKEN) + _MESSAGE_TOKENS + images * _IMAGE_TOKENS


def storable(text: str) -> str:
    """The text without lone surrogates, which cannot be encoded. Plug-ins may produce them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def head_and_tail(text: str, bytes_max: int, *, is_kept: bool = True) -> str:
    """The beginning and the end of a long output, with a note of how much is left out. ``is_kept``: the full
    output is stored."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    head = data[: bytes_max * 2 // 3].decode("utf-8", "ignore")
    tail = data[len(data) - bytes_max // 3 :].decode("utf-8", "ignore")
    missing = len(data) - len(head.encode()) - len(tail.encode())
    kept = "; the full output is kept as an artifact" if is_kept else ""
    return f"{head}\n[… {missing:,} bytes left out{kept} …]\n{tail}"
