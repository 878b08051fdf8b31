"""Workspaces as values: scan a folder into trees of blobs, compare two trees, restore one.

Imports domain, store and tools. Called by engine, web and cli. Start with ``domain/trees``, then ``scan`` and
``restore``.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.workspace.archive import Archive, ZipSink
    from everturn.workspace.arrival import Arrival, Arrived
    from everturn.workspace.compare import (
        Compare,
        ComparedFile,
        Comparison,
        FileDiff,
        FileHistory,
        FileVersion,
    )
    from everturn.workspace.diff import Change, find_conflicts
    from everturn.workspace.folder_lock import hold_folder
    from everturn.workspace.ignore import IgnoreRules
    from everturn.workspace.index import Folder, load_index, save_index
    from everturn.workspace.loop_calls import run_on_loop
    from everturn.workspace.overlay import to_path
    from everturn.workspace.recorder import Brought, Recorder, Seen
    from everturn.workspace.restore import Restore, Restored
    from everturn.workspace.restorer import Applied, MadeFiles, Restorer, ShownPlan
    from everturn.workspace.saves import save_file
    from everturn.workspace.scan import Limits, Scan, left_out
    from everturn.workspace.session_archive import SessionArchive
    from everturn.workspace.session_import import OpenArchive, import_archive, open_archive
    from everturn.workspace.settings import FilesSettings
    from everturn.workspace.versions import Found, Versions
    from everturn.workspace.views import FolderView, OpenedFile, TreeView, View

__all__ = [
    "Applied",
    "Archive",
    "Arrival",
    "Arrived",
    "Brought",
    "Change",
    "Compare",
    "ComparedFile",
    "Comparison",
    "FileDiff",
    "FileHistory",
    "FileVersion",
    "FilesSettings",
    "Folder",
    "FolderView",
    "Found",
    "IgnoreRules",
    "Limits",
    "MadeFiles",
    "OpenArchive",
    "OpenedFile",
    "Recorder",
    "Restore",
    "Restored",
    "Restorer",
    "Scan",
    "Seen",
    "SessionArchive",
    "ShownPlan",
    "TreeView",
    "Versions",
    "View",
    "ZipSink",
    "find_conflicts",
    "hold_folder",
    "import_archive",
    "left_out",
    "load_index",
    "open_archive",
    "run_on_loop",
    "save_file",
    "save_index",
    "to_path",
]

__getattr__ = lazy_names(__name__)
