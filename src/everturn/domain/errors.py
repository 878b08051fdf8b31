"""All errors, under one root, grouped by what the caller can do about them.

``Refused``   the request is wrong or came too late: change it, or read again and decide.
``Retry``     the request is fine: the same one can be tried again.
``Stopped``   this process must not write any more, or an operator has to act.
``StoreFault``  a bug of ours in one request; all others continue.
``ModelTrouble``  a model call failed; the engine decides what to do next (``model_errors``).

Each error has a stable ``code``, an HTTP ``status``, a message that says what failed on which thing and
what is still safe, and a ``hint`` that says what to do next. A ``remedy`` says the same to programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import ClassVar

from everturn.domain.json_types import Json


class Remedy(StrEnum):
    """What most likely helps. Clients offer it as a button and must ignore values they do not know."""

    RETRY = "retry"  # the same request may succeed later
    CHOOSE_MODEL = "choose_model"  # this model cannot answer, another one may
    OPEN_SETTINGS = "open_settings"  # a provider's key or address is missing or wrong
    SIGN_IN = "sign_in"


class EverturnError(Exception):
    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    hint: str = ""
    remedy: Remedy | None = None

    def __init__(
        self, message: str, hint: str | None = None, *, remedy: Remedy | None = None, **facts: Json
    ) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        if remedy is not None:
            self.remedy = remedy
        self.facts = facts


class Refused(EverturnError):
    code = "refused"
    status = 400


class Retry(EverturnError):
    code = "retry"
    status = 503
    remedy = Remedy.RETRY


class Stopped(EverturnError):
    code = "stopped"
    status = 503


# --- refused ---------------------------------------------------------------------------------------


class Invalid(Refused):
    code = "invalid"
    status = 422


class ProfileMissing(Invalid):
    """A session, a turn or a setting names a profile that is not there. No other one takes its place: that
    could allow more, or send the conversation elsewhere."""

    code = "profile_missing"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"There is no profile {name[:60]!r}.",
            hint=f"Choose another one, or make it again. The profiles are: {', '.join(sorted(known))}.",
        )


class InvalidId(Refused):
    code = "invalid_id"
    status = 422

    def __init__(self, value: str, prefix: str, *, then: str = "") -> None:
        rule = f"{prefix!r} and 26 characters of 0-9 and a-z without i, l, o and u"
        super().__init__(
            f"{value[:80]!r} is not an id: it must be {rule}{then and f', then {then}'}.",
            hint="Copy the id from an answer of this server.",
        )


class TextEmpty(Refused):
    code = "text_empty"
    status = 422

    def __init__(self) -> None:
        super().__init__("The message has no text and no attachment.", hint="Write something, then send.")


class TextTooLong(Refused):
    code = "text_too_long"
    status = 413

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"The message has {size:,} bytes; the limit is {limit:,}. Nothing was stored.",
            hint="Attach it as a file, or raise text_bytes_max in config.toml.",
        )


class NotFound(Refused):
    code = "not_found"
    status = 404

    def __init__(self, what: str, ident: str) -> None:
        super().__init__(f"There is no {what} {ident}.", hint="It may have been deleted; list again.")


class Gone(Refused):
    code = "deleted"
    status = 410

    def __init__(self, what: str, ident: str) -> None:
        super().__init__(f"The {what} {ident} was deleted and stays deleted.", hint="Start a new session.")


class Stale(Refused):
    """The write was based on an old version of the session or schedule. ``current`` is the one to read."""

    code = "stale_version"
    status = 409

    def __init__(self, thing_id: str, given: int, current: int, *, what: str = "Session") -> None:
        super().__init__(
            f"{what} {thing_id} is at version {current}, the request was based on {given}. "
            "Nothing was changed.",
            hint=f"Read the {what.lower()} again and repeat the change if it still makes sense.",
            given=given,
            current=current,
        )
        self.current = current


class StaleFile(Refused):
    """The file is not the one that was to be replaced. ``sha256`` is that of the present one; None: there is
    none."""

    code = "stale_file"
    status = 412

    def __init__(self, path: str, sha256: str | None) -> None:
        what = "there is no such file any more" if sha256 is None else "it was changed meanwhile"
        super().__init__(
            f"{path} was not saved: {what}. Nothing was changed.",
            hint="Read it again, then save over it or under another name.",
            sha256=sha256,
        )


class Busy(Refused):
    code = "session_busy"
    status = 409

    def __init__(self, session_id: str, turn_id: str, state: str) -> None:
        super().__init__(
            f"Turn {turn_id} of session {session_id} is {state}. Nothing was changed.",
            hint="Stop the turn or wait until it ends, then try again.",
            turn_id=turn_id,
            state=state,
        )


class FilesConflict(Refused):
    """A restore would overwrite what a user changed. ``conflicts``: their files, with what they did."""

    code = "files_conflict"
    status = 409

    def __init__(self, conflicts: Sequence[object], message: str = "") -> None:
        super().__init__(
            message
            or f"{len(conflicts)} changed file{'s' * (len(conflicts) != 1)} would be overwritten. "
            "Nothing was changed.",
            hint="Say what to do with them: files = restore, keep or both, or choices for single paths.",
            conflicts=conflicts,
        )


class JobsRunning(Refused):
    """The files cannot follow the conversation while a job works in their folder."""

    code = "jobs_running"
    status = 409

    def __init__(self, jobs: Sequence[str]) -> None:
        super().__init__(
            "A job of the session still works in its folder. Nothing was changed.",
            hint="Stop it first, or move the conversation only: files = keep.",
            jobs=list(jobs),
        )


class TooManyJobs(Refused):
    code = "too_many_jobs"
    status = 409

    def __init__(self, running_max: int) -> None:
        super().__init__(
            f"The session already runs {running_max} jobs, and may not run more. Nothing was started.",
            hint="Stop one of them, or wait until one ends.",
        )


class TooManyDelegates(Refused):
    code = "too_many_delegates"
    status = 409

    def __init__(self, wanted: int, at_work: int, at_once_max: int) -> None:
        super().__init__(
            f"{wanted} more delegates would be too many: {at_work} are at work for this session, and at most "
            f"{at_once_max} may be. Nothing was started.",
            hint="Start fewer, or wait until some have ended.",
        )


class DelegatesTooDeep(Refused):
    code = "delegates_too_deep"
    status = 409

    def __init__(self, depth_max: int) -> None:
        super().__init__(
            f"A delegate at depth {depth_max} cannot delegate further. Nothing was started.",
            hint="Do the task yourself.",
        )


class JobElsewhere(Refused):
    code = "job_elsewhere"
    status = 409

    def __init__(self, job_id: str, machine: str) -> None:
        super().__init__(
            f"The output of job {job_id} is on the machine {machine} until the job is over.",
            hint="The session shows its beginning; ask there, or wait until it has ended.",
        )


class JobsOff(Refused):
    code = "jobs_off"
    status = 409

    def __init__(self) -> None:
        super().__init__("No jobs can be started here.", hint="Run the command in the foreground.")


class NothingToDo(Refused):
    code = "nothing_to_do"
    status = 409


class KeyReused(Refused):
    code = "idempotency_key_reused"
    status = 422

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The idempotency key {key[:80]!r} was used in this session with another body.",
            hint="Use a new key for a new request.",
        )


class WrongState(Refused):
    code = "wrong_state"
    status = 409


class SteeringWaits(WrongState):
    """The turn cannot complete: it has not yet taken in a message that the user sent into it."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"Turn {turn_id} has steering messages that it has not taken in.")


class Denied(Refused):
    code = "denied"
    status = 403


class HookDenied(Refused):
    """A posted update was not stored. It does not say why: its sender is not known."""

    code = "hook_denied"
    status = 401

    def __init__(self) -> None:
        super().__init__(
            "The request was not accepted. Nothing was stored.",
            hint="Check the account's name, its secret and the clock of the sender.",
        )


class AccountRefused(Refused):
    """The platform does not accept an account, for example because its token is wrong."""

    code = "account_refused"
    status = 422


class BadImport(Refused):
    code = "bad_import"
    status = 422


class AlreadyImported(BadImport):
    """An earlier import brought this session in."""


class PlatformRefused(Refused):
    """The platform will never take what was sent, for example because the chat was deleted."""

    code = "platform_refused"
    status = 502


class Limit(Refused):
    code = "limit"
    status = 429


# --- retry -----------------------------------------------------------------------------------------


class StoreAway(Retry):
    """The database cannot be reached. This call wrote nothing."""

    code = "store_away"


class OutcomeUnknown(Retry):
    """The commit may or may not have happened; nothing was published."""

    code = "outcome_unknown"


class DiskFull(Retry):
    """Running turns wait until there is room, then continue."""

    code = "disk_full"
    status = 507
    hint = "Free space, then try again. Everything acknowledged before is safe."


class DiskReadOnly(Retry):
    code = "disk_read_only"
    status = 507
    hint = "Make the data folder writable, then try again. Everything acknowledged before is safe."


class StorageAway(Retry):
    """The object storage that holds the bytes of files cannot be reached. The database can."""

    code = "storage_away"
    hint = "It is tried again with the next request; see whether the storage runs."


class Overloaded(Retry):
    code = "overloaded"
    status = 429


class PlatformBusy(Retry):
    """The platform certainly did not take what was sent. ``after_s``: how long it wants to be left alone."""

    code = "platform_busy"

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message, hint="It is sent again later.")
        self.after_s = after_s


# --- stopped ---------------------------------------------------------------------------------------


class Fenced(Stopped):
    """Another worker has the turn, or the turn has ended: this worker must not write to it any more."""

    code = "fenced"
    status = 409

    def __init__(self, turn_id: str, epoch: int, state: str, current: int) -> None:
        super().__init__(
            f"Turn {turn_id} is {state} at epoch {current}; this worker held epoch {epoch}. "
            "Nothing was written.",
            turn_id=turn_id,
            state=state,
        )
        self.state = state


class LeaseLost(Stopped):
    """Another worker serves the account: this one must not send for it any more."""

    code = "lease_lost"
    status = 409

    def __init__(self, account: str, epoch: int) -> None:
        super().__init__(
            f"Another worker serves the account {account}; this one held epoch {epoch}. Nothing was written.",
            account=account,
        )


class StoreBroken(Stopped):
    """A sync failed: the content of the disk is unknown until the store is opened again."""

    code = "store_broken"
    hint = "Check the disk, then restart. Everything acknowledged before is safe."


class FileUnreadable(Stopped):
    """A stored file exists but cannot be read now. Continuing without it would look as if it were gone."""

    code = "file_unreadable"
    hint = "Check the disk and the number of open files, then try again. Nothing is lost."


class FileMissing(Stopped):
    """The store names a file whose bytes are missing or incomplete on the disk."""

    code = "file_missing"
    status = 404
    hint = "Run 'everturn doctor', which lists such files; a backup has the bytes if it was taken before."


class BlobMissing(Stopped):
    """The store has no such bytes: they were never stored, or were collected because nothing named them."""

    code = "blob_missing"
    status = 404
    hint = "Run 'everturn doctor', which lists files without bytes; a backup has them if it was taken before."

    def __init__(self, sha256: str) -> None:
        super().__init__(
            f"The bytes {sha256[:80]} are not stored. Everything else can be read.", sha256=sha256
        )


class BlobDamaged(Stopped):
    """Stored bytes are missing or not what they were. The rest of them can still be read."""

    code = "blob_damaged"
    hint = "Check the disk. A backup has the bytes if it was taken before; storing the same file repairs it."

    def __init__(self, sha256: str, why: str) -> None:
        super().__init__(f"The bytes {sha256} are damaged: {why}. Nothing else is affected.", sha256=sha256)
        self.why = why


class TreeUnreadable(Stopped):
    code = "tree_unreadable"
    hint = (
        "It was written by a newer version of Everturn, or it is damaged. Everything else can still be read."
    )


class WorkspaceUnreadable(Retry):
    """The folder of a session cannot be read at the moment, so no checkpoint of it was made."""

    code = "workspace_unreadable"
    hint = "See whether the folder is there and can be read. The next step records what changed meanwhile."


class WorkspaceUnwritable(Stopped):
    """The folder of a session could not be brought to what it has to hold."""

    code = "workspace_unwritable"
    hint = "See whether its disk has space and can be written. Then press Resume."


class NotADatabase(Stopped):
    code = "not_a_database"
    hint = "Name another file, or restore a backup with 'everturn restore'."


class StoreTooNew(Stopped):
    code = "store_too_new"
    hint = "Upgrade Everturn, or open another data folder."


class StoreRefused(Stopped):
    """The store's environment is not safe: an old SQLite, a network file system, fsync off."""

    code = "store_refused"


class SecretUnreadable(Stopped):
    """A stored secret cannot be decrypted: another key is needed, or its row is damaged."""

    code = "secret_unreadable"


class SecretKeyWrong(Stopped):
    """The stored secrets were encrypted with a key that this process does not have."""

    code = "secret_key_wrong"


class JournalCorrupt(Stopped):
    code = "journal_corrupt"
    hint = "Run 'everturn doctor'; a backup has the row if it was taken before the damage."


# --- faults ----------------------------------------------------------------------------------------


class StoreFault(EverturnError):
    """One request failed in the store for a reason that has no error class. Nothing of it was stored.

    All other requests continue: only a failure of the database itself stops writing."""

    code = "store_fault"
    hint = "This is a bug in Everturn. The log has the details; 'everturn doctor' checks the data."
