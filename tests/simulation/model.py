"""What a store must say, in plain dictionaries and lists: the model that simulations compare with."""

from __future__ import annotations

from dataclasses import dataclass, field

from everturn.domain.store_values import WhenBusy


@dataclass
class Said:
    """One message that a turn's journal holds, by whom and whether it came late."""

    epoch: int
    number: int
    text: str
    is_late: bool = False
    is_work: bool = True  # not so for steering, which the store itself writes


@dataclass
class TurnModel:
    id: str
    text: str
    state: str = "queued"
    parent: str | None = None
    has_parent: bool = False
    is_ready: bool = False
    is_compaction: bool = False
    said: list[Said] = field(default_factory=list)
    steering: list[str] = field(default_factory=list)
    epoch: int = 0
    number: int = 0
    worker: str = ""
    writers: dict[int, str] = field(default_factory=dict)  # unsealed epochs and their workers
    ask: str | None = None
    may_be_pruned: bool = False

    @property
    def is_active(self) -> bool:
        return self.state in ("running", "waiting")

    @property
    def is_ended(self) -> bool:
        return self.state in ("completed", "cancelled", "failed", "interrupted")

    def words(self) -> list[str]:
        """The turn in the transcript: the user's words, and once it has ended, what was said."""
        mine = [] if self.is_compaction else [self.text]
        if not self.is_ended:
            return mine
        newest = max((s.epoch for s in self.said if s.is_work and not s.is_late), default=0)
        kept = [s for s in self.said if not (s.is_late and s.epoch < newest)]
        return mine + [s.text for s in sorted(kept, key=lambda s: (s.epoch, s.number))]


@dataclass
class SessionModel:
    id: str
    title: str
    turns: dict[str, TurnModel] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    head: str | None = None
    redo: str | None = None
    redo_all: bool = False
    keys: dict[str, tuple[WhenBusy, str]] = field(default_factory=dict)  # key -> (when busy, turn)

    @property
    def active(self) -> TurnModel | None:
        return next((turn for turn in self.turns.values() if turn.is_active), None)

    def path(self, end: str | None = None) -> list[TurnModel]:
        found = []
        at = end if end is not None else self.head
        while at is not None:
            found.append(self.turns[at])
            at = self.turns[at].parent
        return found[::-1]

    def words(self) -> list[str]:
        return [text for turn in self.path() for text in turn.words()]

    def context(self) -> list[str]:
        """From the newest summary on; without any, the whole path."""
        path = self.path()
        starts = [n for n, turn in enumerate(path) if turn.is_compaction and turn.words()]
        return [text for turn in path[starts[-1] if starts else 0 :] for text in turn.words()]

    def claimable(self) -> TurnModel | None:
        ready = [turn for turn in self.turns.values() if turn.is_ready]
        if ready:
            return ready[0]
        if self.active is None and self.queue:
            return self.turns[self.queue[0]]
        return None

    @property
    def is_busy(self) -> bool:
        """A turn runs, waits, or is about to run."""
        return self.active is not None or bool(self.queue)

    # --- what moves it -------------------------------------------------------------------------------------

    def add(self, turn: TurnModel, *, is_first: bool = False) -> None:
        self.turns[turn.id] = turn
        self.queue.insert(0 if is_first else len(self.queue), turn.id)

    def take(self, turn: TurnModel, worker: str, epoch: int) -> None:
        if turn.state == "queued":
            self.queue.remove(turn.id)
            self.join(turn)
        turn.state, turn.is_ready, turn.worker = "running", False, worker
        turn.epoch, turn.number = epoch, 1
        turn.writers[epoch] = worker

    def join(self, turn: TurnModel) -> None:
        """The turn becomes the end of the transcript."""
        if not turn.has_parent:
            turn.parent, turn.has_parent = self.head, True
        self.head, self.redo, self.redo_all = turn.id, None, False

    def cancel_unclaimed(self, turn: TurnModel) -> None:
        """One that was about to run stays in the transcript; one that waited behind others leaves."""
        is_next = self.claimable() is turn
        if turn.state == "interrupted":
            turn.is_ready = False
            return
        self.queue.remove(turn.id)
        turn.state = "cancelled"
        if is_next and not turn.is_compaction:
            self.join(turn)

    def end(self, turn: TurnModel, state: str, *, is_sealed: bool) -> list[str]:
        """End an active turn; return the steering that becomes queued turns. ``is_sealed``: by its worker, who
        has said all it had to say."""
        left, turn.steering = turn.steering, []
        turn.state, turn.is_ready, turn.worker, turn.ask = state, False, "", None
        if is_sealed:
            turn.writers.pop(turn.epoch, None)
        return left

    def forget_resumption(self) -> None:
        for turn in self.turns.values():
            if turn.state == "interrupted":
                turn.is_ready = False

    def undo(self) -> None:
        assert self.head is not None
        self.redo, self.redo_all = self.redo or self.head, False
        self.head = self.turns[self.head].parent

    def step_forward(self) -> None:
        assert self.redo is not None
        path = [turn.id for turn in self.path(self.redo)]
        place = path.index(self.head) + 1 if self.head in path else 0
        self.head = self.redo if self.redo_all else path[place]
        if self.head == self.redo:
            self.redo = None
        self.redo_all = False

    def clear(self) -> None:
        self.redo, self.redo_all = self.redo or self.head, True
        self.head = None
