"""Workspaces as values: scan a folder into trees of blobs, compare two trees, restore one.

Imports domain, store and tools. Called by engine, web and cli. Start with ``domain/trees``, then ``scan`` and
``restore``.
"""

from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Reason, Tree, decode_tree, encode_tree, shown
from everturn.workspace.diff import Change, diff, find_conflicts
from everturn.workspace.ignore import IgnoreRules
from everturn.workspace.index import Folder, load_index, save_index
from everturn.workspace.recorder import FilesSettings, Recorder
from everturn.workspace.restore import Restore, Restored
from everturn.workspace.scan import Limits, Scan, left_out

__all__ = [
    "EMPTY_TREE",
    "Change",
    "Entry",
    "FilesSettings",
    "Folder",
    "IgnoreRules",
    "Kind",
    "Limits",
    "Reason",
    "Recorder",
    "Restore",
    "Restored",
    "Scan",
    "Tree",
    "decode_tree",
    "diff",
    "encode_tree",
    "find_conflicts",
    "left_out",
    "load_index",
    "save_index",
    "shown",
]
