"""Named moments at which a test can hold, fail or kill; inert in production.

Every member of ``Moment`` is a place between two steps where a crash or a race could hurt. The crash
suite kills a process at each one, so adding a moment adds a test.
"""

from __future__ import annotations

from enum import StrEnum


class Moment(StrEnum):
    ACCEPT_WRITTEN = "accept.written"  # in the transaction, not yet committed
    ACCEPT_COMMITTED = "accept.committed"  # durable, not yet acknowledged
    CLAIM_COMMITTED = "claim.committed"  # the turn has a worker, nothing was done
    MODEL_CALLED = "model.called"  # the request is about to leave
    DELTA_OFFERED = "delta.offered"  # a delta waits for the writer
    BATCH_WRITTEN = "batch.written"  # events are in the transaction, not committed
    BATCH_COMMITTED = "batch.committed"  # durable; no reader was woken yet
    STEP_FINISHED = "step.finished"  # the model call and its wishes are journaled
    TOOL_STARTED = "tool.started"  # "started" is journaled, the tool has not run
    TOOL_RAN = "tool.ran"  # the effect happened, "finished" is not journaled
    TOOL_FINISHED = "tool.finished"  # "finished" is journaled
    ASK_COMMITTED = "ask.committed"  # the question is durable, the turn waits
    ANSWER_COMMITTED = "answer.committed"  # the answer is durable, the turn is claimable
    WRITER_QUIET = "writer.quiet"  # all progress is durable, the end is not written
    END_WRITTEN = "end.written"  # the end is in the transaction, not committed
    END_COMMITTED = "end.committed"  # the turn has its end; no reader was woken yet
    CANCEL_REQUESTED = "cancel.requested"  # the caller asked, nothing is written
    CANCEL_COMMITTED = "cancel.committed"  # cancelled durably, the runner does not know yet
    MOVE_WRITTEN = "move.written"  # undo, redo, retry, edit, branch: before the commit
    TITLE_MADE = "title.made"  # a title was generated, not yet written
    SUMMARY_MADE = "summary.made"  # a summary was generated, not yet written
    FILE_SYNCED = "file.synced"  # an attachment is on disk, no row names it
    BLOB_WRITTEN = "blob.written"  # the bytes of a pack are durable, no row names them
    BLOBS_MARKED = "blobs.marked"  # blobs that no root names are marked, their bytes are there
    PACK_DELETED = "pack.deleted"  # the bytes of a pack are deleted, its rows are there
    CHECKPOINT_WRITTEN = (
        "checkpoint.written"  # bytes are durable, the row is in the transaction, not committed
    )
    CHECKPOINT_COMMITTED = "checkpoint.committed"  # the row is durable, no event names it
    FILES_PLANNED = "files.planned"  # the present files are stored, the conversation has not moved
    FILES_PUT_ASIDE = "files.put_aside"  # what lay in a folder is stored, the files that come are not there
    FILES_RESTORED = "files.restored"  # the folder holds what is wanted, its row does not say so
    SPOOL_SYNCED = "spool.synced"  # events are in the spool file, not in the database
    SPOOL_DELIVERED = "spool.delivered"  # events are in the database, the file still has them
    HANDED_OVER = "handed.over"  # shutdown released the turn
    TAKEN_OVER = "taken.over"  # a dead worker's turns were released
    INDEXED = "indexed"  # rows entered the search index, before the commit
    PRUNED = "pruned"  # a finished turn's events were deleted, before the commit
    SWEEP_COMMITTED = "sweep.committed"  # no row names the files any more, their bytes are there
    SWEPT = "swept"  # files without references were deleted
    MEMORY_BEGUN = "memory.begun"  # the commit's range is in the transaction, not committed
    MEMORY_STARTED = "memory.started"  # the commit's range is durable, the provider not called
    MEMORY_RETURNED = "memory.returned"  # the provider is done, the ledger does not know
    MEMORY_WRITTEN = "memory.written"  # "settled" is in the transaction, not committed
    MEMORY_SETTLED = "memory.settled"  # the ledger says settled
    INBOX_RECEIVED = "inbox.received"  # an update is a row, the platform has no acknowledgement
    REPLY_RECORDED = "reply.recorded"  # the parts of a reply are rows, none was sent
    OCCURRENCE_WRITTEN = (
        "occurrence.written"  # a time has its fate and turn in the transaction, not committed
    )
    OCCURRENCE_COMMITTED = "occurrence.committed"  # durable; the engine does not know of the turn
    PART_CLAIMED = "part.claimed"  # a part is about to be sent
    PART_SENT = "part.sent"  # the platform has the part, its receipt is not stored
    JOB_ADDED = "job.added"  # a job is a row, its command was not started
    JOB_STARTED = "job.started"  # its command runs, its tool call has no result
    JOB_KEPT = "job.kept"  # its output is stored, its end is not
    SKILL_STORED = "skill.stored"  # the bytes of a skill are stored, the record that names them is not
    JOB_ENDED = "job.ended"  # its end is in the session, its files are still there


class Probe:
    """The inert probe. ``testing`` has the one that holds and the one that kills."""

    async def reach(self, moment: Moment, subject: str = "") -> None:
        """Called by coroutines; a holding probe waits here."""

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        """Called by threads and synchronous code; a holding probe blocks here."""
