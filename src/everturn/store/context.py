"""What every part of an open store shares. Built once by ``open_store``."""

from __future__ import annotations

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.store.files.disk import Disk
from everturn.store.journal.hub import Hub
from everturn.store.settings import StoreSettings


class StoreContext(msgspec.Struct, frozen=True):
    clock: Clock
    ids: Ids
    probe: Probe
    disk: Disk
    hub: Hub
    settings: StoreSettings
