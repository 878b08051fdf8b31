"""Trees and checkpoints for tests: see ``everturn.testing.checkpoints``."""

from everturn.testing.checkpoints import (
    CHANGES,
    files_in,
    new_checkpoint,
    put_tree,
)

__all__ = [
    "CHANGES",
    "files_in",
    "new_checkpoint",
    "put_tree",
]
