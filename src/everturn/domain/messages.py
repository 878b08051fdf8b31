"""Messages and their parts: what a reader sees and what the model is given."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from everturn.domain.asks import Decision
from everturn.domain.checkpoints import FileChange
from everturn.domain.json_types import Json


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SUMMARY = "summary"


class Outcome(StrEnum):
    """How a tool call ended. UNKNOWN: it started, and whether it took effect is not known."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Part(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of the parts. The field ``type`` distinguishes them."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a message came from, if not from the page or a program: a chat on a messaging platform."""

    platform: str
    sender: str = ""  # the sender's name
    sent_at: int | None = None
    is_trusted: bool = False  # the owner of the session wrote it


class Text(Part, frozen=True, tag="text"):
    text: str
    is_abandoned: bool = False  # shown, never given to the model
    cuts: tuple[int, ...] = ()  # offsets at which a model call died and another one continued
    source: Source | None = None


class Reasoning(Part, frozen=True, tag="reasoning"):
    text: str
    is_abandoned: bool = False
    # What the provider wants back untouched in the next call, and who made it.
    opaque: Json = None
    model: str = ""


class Call(Part, frozen=True, tag="call"):
    """A tool call that the model asked for. ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Result(Part, frozen=True, tag="result"):
    call_id: str
    name: str
    text: str
    outcome: Outcome = Outcome.OK
    artifact: str | None = None  # the full output, where the text is only its head and tail
    display: Json = None  # what the page draws, e.g. a diff; never given to the model
    duration_ms: int | None = None
    is_untrusted: bool = False  # came from a tool, the web or MCP
    arguments: str | None = None  # those that the user put in place of the call's own
    decision: Decision | None = None  # the answer to its approval
    decided_in: str = ""  # the platform whose chat gave that answer, if one did
    output: str | None = None  # what a call that never reported back had printed; never given to the model
    not_kept: str = ""  # why the full output could not be stored, where the text is only a part of it


class Attachment(Part, frozen=True, tag="attachment"):
    file_id: str
    name: str
    media_type: str
    size: int


class Summary(Part, frozen=True, tag="summary"):
    """Stands for everything up to and including ``covers``."""

    text: str
    covers: str  # the id of the last message it covers
    messages: int = 0
    tokens_before: int | None = None
    tokens_after: int | None = None


class SavedFiles(Part, frozen=True, tag="saved_files"):
    """Files that the user saved or changed since the turn before: the first ones, and how many there are. A
    message with this part alone follows the user's words, and the model is given both as one."""

    changes: tuple[FileChange, ...]
    total: int


class UsedSkill(Part, frozen=True, tag="skill"):
    """A skill that the user named with a slash, as the model reads it. A message with this part alone
    follows the user's words, and the model is given both as one."""

    name: str
    digest: str  # of the version
    text: str


class NewerPart(dict[str, Json]):
    """A part that only a newer version can read, as it is stored (G04).

    Clients and exports get it as it is; the model does not. It is not in ``AnyPart``, because no request may
    contain one: only reading the store makes it.
    """


AnyPart = Text | Reasoning | Call | Result | Attachment | Summary | SavedFiles | UsedSkill


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    turn_id: str
    role: Role
    parts: tuple[AnyPart, ...]
    created_at: int
    ordinal: int = 0
    is_steering: bool = False  # sent into a running turn
    is_recovered: bool = False  # taken from the journal of an interrupted turn
    model: str = ""
    is_imported: bool = False  # came in with a document: neither the user nor a model here wrote it

    @property
    def text(self) -> str:
        """The words of the message, without reasoning and abandoned attempts."""
        return "\n".join(
            part.text
            for part in self.parts
            if isinstance(part, (Text, Summary)) and not getattr(part, "is_abandoned", False)
        )

    @property
    def brings_outside_text(self) -> bool:
        """True if it contains text that neither the user nor the model wrote: a tool's output, a file or its
        name, an imported message, a message of another person. A summary counts too, because it may repeat
        such text."""
        if self.is_imported or self.role is Role.SUMMARY:
            return True
        return any(
            isinstance(part, (Attachment, SavedFiles, NewerPart))
            or (isinstance(part, Result) and part.is_untrusted)
            or (isinstance(part, Text) and _is_of_others(part))
            for part in self.parts
        )


def _is_of_others(text: Text) -> bool:
    return text.source is not None and not text.source.is_trusted


def untrusted_source(message: Message) -> Source | None:
    """Who wrote the message, if it was not the owner. Rewording does not make such a text the owner's."""
    sources = (part.source for part in message.parts if isinstance(part, Text))
    return next((source for source in sources if source is not None and not source.is_trusted), None)
