"""What other programs run outside the sandbox, as a project's owner: hooks, editor tasks, settings of Git.

A command in the sandbox writes to the project, and its owner works there too. A file that the owner's shell,
editor or Git runs by itself would turn that into code that runs as the owner. So:

- file tools ask before they write such a file, and write it only under its own name, not through a link;
- in the sandbox those that are there are read-only. Git must be able to write beside its settings, so one of
  them that is missing cannot be made read-only: a command that makes it is ended;
- what else a command made (a repository in a folder of its own, an editor's folder) is looked at when it has
  ended, and what would run is renamed, so that nothing finds it;
- a socket in the project may lead to a server of the owner, so it is covered: the sandbox reaches no server
  of this machine through the network, and must not reach one through a file.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from everturn.tools.paths import FolderHandle
from everturn.tools.policy.git_config import is_harmless, worktrees
from everturn.tools.policy.named_files import named_files
from everturn.tools.policy.repositories import GIT, MARKS, Repositories, RepositoryScan, is_repository
from everturn.tools.policy.small_files import git_folder, read_small_file
from everturn.tools.policy.startup_files import CONFIG, is_startup_file, startup_part

# What of a repository is settings. "commondir" names another folder that has them.
_FILES = ("config", "config.worktree", "commondir")
_SETTINGS = (*_FILES, "hooks")
_MOUNTED_MAX = 50  # repositories; more are looked at while the command runs, and it is ended if they change
_SOCKETS_MAX = 500
_FILES_WATCHED_MAX = 1000  # of a folder that is guarded as a whole


class GuardedMount(msgspec.Struct, frozen=True):
    """Something that is mounted only if it is still the same file or folder when the sandbox is ready."""

    option: str
    path: str
    identity: str  # device and inode of what is seen there once it is mounted
    source: str = ""  # what is mounted there; empty: what is there already


class ProjectGuard:
    """The guarded files of one project while one command runs in it."""

    def __init__(
        self,
        workspace: Path,
        repositories: Repositories,
        *,
        can_mount: bool = True,
        covers_sockets: bool = True,
    ) -> None:
        """Look at the project; this walks through all its folders. ``can_mount`` False: nothing can be
        mounted for the command, so everything is watched, and no socket can be used anyway."""
        self._root = str(workspace)
        self._repositories = repositories
        found = repositories.find()
        self._known = {path: _identity(path) for path in found.paths}
        self._closed = {path: _version(path) for path in found.closed}
        self._sockets = {path: _version(path) for path in found.sockets}
        self._had_repository = os.path.lexists(self._at(GIT))
        self._startup_files = tuple(self._find_startup_files())
        self._watched: dict[str, str] = {}  # by path: its version, empty where there is nothing
        self._version = _version if can_mount else _deep_version
        self.places = self._mounts(found) if can_mount else self._watch_all(found)
        # What a place held. The owner's Git replaces a file of settings as a whole, and then the kernel takes
        # its mount away, in the sandbox too.
        paths = [place.path for place in self.places] if can_mount else list(self._watched)
        self._contents = {
            path: read_small_file(path) or b"" for path in paths if os.path.basename(path) in _FILES
        }
        foreign = _foreign(repositories, self._sockets)
        covers_sockets = covers_sockets and can_mount
        self.covers = tuple(map(_cover, foreign[:_SOCKETS_MAX])) if covers_sockets else ()
        self.is_cut = found.is_cut or len(foreign) > _SOCKETS_MAX

    def _mounts(self, found: RepositoryScan) -> tuple[GuardedMount, ...]:
        """What is mounted, folders before what is in them. What cannot be mounted is watched."""
        mounted, rest = found.paths[:_MOUNTED_MAX], found.paths[_MOUNTED_MAX:]
        places: dict[str, GuardedMount] = {}
        for path in (*self._with_targets(self._startup_files), *self._settings_of(mounted)):
            place = _place("--ro-bind", path)
            if place is None:
                self._watched[path] = _version(path)
            else:
                places[path] = place
        # Mounts themselves: else they could be moved away and others put in their place.
        for path in (*mounted, self._at(CONFIG)):
            place = _place("--bind", path) if _is_folder(path) else None
            if place is not None:
                places[path] = place
        self._watched.update((path, _version(path)) for path in self._settings_of(rest))
        return tuple(places[path] for path in sorted(places, key=lambda path: path.count("/")))

    def _watch_all(self, found: RepositoryScan) -> tuple[GuardedMount, ...]:
        paths = (*self._with_targets(self._startup_files), *self._settings_of(found.paths))
        self._watched = {path: _deep_version(path) for path in paths}
        return ()

    @property
    def covered(self) -> tuple[str, ...]:
        """The sockets that a command cannot connect to, relative to the project."""
        return tuple(self._relative(place.path) for place in self.covers)

    @property
    def read_only(self) -> tuple[str, ...]:
        """What a command cannot write to, relative to the project."""
        return tuple(
            os.path.relpath(place.path, self._root) for place in self.places if place.option == "--ro-bind"
        )

    def forbidden_change(self) -> str:
        """A change for which the running command must be ended now; empty if there is none."""
        for path, before in self._watched.items():
            if self._version(path) != before:
                return self._relative(path)
        for place in self.places:
            if _identity(place.path) != place.identity:
                return self._relative(place.path)
        git = self._at(GIT)
        if not self._had_repository and os.path.lexists(git) and self._harmful(git):
            return self._relative(git)
        return ""

    def rename_harmful(self) -> list[str]:
        """After a command: rename what it made that other programs would run; return the old names."""
        aside = [path for path, before in self._watched.items() if self._version(path) not in ("", before)]
        aside += self._find_replaced()
        self._open_top()
        aside += [path for path in self._find_startup_files() if path not in self._startup_files]
        found = self._repositories.find()
        for path in found.paths:
            if self._known.get(path) != _identity(path):
                aside += self._harmful(path)
        # What they hold cannot be looked at, so they count as harmful.
        aside += [path for path in found.closed if self._closed.get(path) != _version(path)]
        versions = ((path, _version(path)) for path in found.sockets)
        self._repositories.record_made(
            version for path, version in versions if self._sockets.get(path) != version
        )
        with FolderHandle(Path(self._root)) as files:
            names = [self._relative(path) for path in dict.fromkeys(aside) if self._set_aside(files, path)]
            self._restore_deleted(files)
        return names

    def _open_top(self) -> None:
        """Restore our own rights to the project's folder, if a command took them away.

        Without them nothing in it can be listed, and the folder itself cannot be renamed.
        """
        mode = os.stat(self._root).st_mode
        if self._root not in self._closed and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(self._root, stat.S_IMODE(mode) | stat.S_IRWXU)

    def _find_startup_files(self) -> Iterator[str]:
        """What other programs run, at the top of the project and in its ``.config``."""
        for name in sorted(os.listdir(self._root)):
            if is_startup_file(name):
                yield self._at(name)
        config = self._at(CONFIG)
        if os.path.islink(config):
            yield config
        elif os.path.isdir(config):
            for name in sorted(os.listdir(config)):
                if is_startup_file(name, in_config=True):
                    yield os.path.join(config, name)

    def _find_replaced(self) -> list[str]:
        """Settings that replaced the mounted ones and make Git run more than those did."""
        settings = [place for place in self.places if os.path.basename(place.path) in _SETTINGS]
        return [
            place.path
            for place in settings
            if _identity(place.path) not in ("", place.identity) and not self._is_harmless_setting(place.path)
        ]

    def _set_aside(self, files: FolderHandle, path: str) -> bool:
        """Rename it in its folder, so that no program finds it, and restore the settings that were there."""
        shown = self._relative(path)
        try:
            files.rename(shown, f"{os.path.basename(path)}.refused-{secrets.token_hex(3)}")
        except FileNotFoundError:
            return False  # a folder above it was renamed already
        if path in self._contents:
            files.write(shown, self._contents[path])
        return True

    def _restore_deleted(self, files: FolderHandle) -> None:
        """Write the settings again that a command deleted, which it can where nothing is mounted."""
        for path, content in self._contents.items():
            if self._watched.get(path) and not os.path.lexists(path) and _is_folder(os.path.dirname(path)):
                files.write(self._relative(path), content)

    def _at(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _settings_of(self, repositories: Sequence[str]) -> Iterator[str]:
        """Paths of settings: those that are there must not change, the others must not appear."""
        for repository in repositories:
            if not _is_folder(repository):
                yield repository  # a file or a link that names the repository
            else:
                yield from self._with_targets(os.path.join(repository, name) for name in _SETTINGS)
            yield from named_files(repository, self._root)

    def _with_targets(self, paths: Iterable[str]) -> Iterator[str]:
        """The paths, and where they lead to if they are links to something in the project."""
        for path in paths:
            yield path
            if os.path.islink(path) and self._is_inside(os.path.realpath(path)):
                yield os.path.realpath(path)

    def _is_inside(self, path: str) -> bool:
        return path.startswith(os.path.realpath(self._root) + "/")

    def _harmful(self, path: str) -> list[str]:
        """The settings of a new repository that would make Git run something."""
        if _is_folder(path):
            return [entry for entry in _setting_paths(path) if not self._is_harmless_setting(entry)]
        target = git_folder(path)
        if target is None or not self._is_inside(target) or not os.path.isdir(target):
            return [path]
        return self._harmful(target) if self._known.get(target) != _identity(target) else []

    def _is_harmless_setting(self, path: str) -> bool:
        name = os.path.basename(path)
        if os.path.islink(path):
            return False
        if name == "hooks":
            return os.path.isdir(path) and all(hook.endswith(".sample") for hook in os.listdir(path))
        content = read_small_file(path)
        if content is None:
            return False
        if name != "commondir":
            known = self._contents.get(path, b"")
            return is_harmless(content, known) and self._are_worktrees_inside(path, content)
        # Git's own, for a second working tree, leads to the repository in whose folder it lies.
        repository = os.path.dirname(path)
        common = os.path.realpath(os.path.join(repository, os.fsdecode(content.strip())))
        return os.path.realpath(os.path.dirname(os.path.dirname(repository))) == common

    def _are_worktrees_inside(self, path: str, content: bytes) -> bool:
        """Whether the repository's files, if it names a folder for them, are in the project."""
        top = os.path.dirname(path)
        return all(self._is_inside(os.path.realpath(os.path.join(top, each))) for each in worktrees(content))


def foreign_sockets(repositories: Repositories) -> dict[str, str]:
    """The sockets of a project at which a server of its owner may listen, by path, with their versions."""
    sockets = {path: _version(path) for path in repositories.find().sockets}
    return {path: sockets[path] for path in _foreign(repositories, sockets)}


def socket_covers(sockets: Iterable[str]) -> tuple[GuardedMount, ...]:
    """What covers these sockets."""
    return tuple(map(_cover, sorted(sockets)[:_SOCKETS_MAX]))


def guarded_part(root: Path, inner: str) -> str:
    """The part of a path in the project that makes other programs run something; empty if none does.

    ``inner`` is the path without links, relative to ``root``.
    """
    parts = PurePosixPath(inner).parts
    if part := startup_part(parts):
        return part
    for depth, part in enumerate(parts):
        folder = root.joinpath(*parts[:depth])
        if is_repository({name for name in MARKS if name == part or os.path.lexists(folder / name)}):
            return "/".join(parts[:depth]) or str(root)
        if named := _named_part(root, folder, inner):
            return named
    return ""


def _named_part(root: Path, folder: Path, inner: str) -> str:
    """The file or folder on this path that settings of the repository in ``folder`` name."""
    top = os.path.realpath(root)
    return next(
        (os.path.relpath(each, top) for each in _named_by(root, folder) if _leads_to(top, inner, each)), ""
    )


def _named_by(root: Path, folder: Path) -> tuple[str, ...]:
    """The real paths in the project that settings of the repository in ``folder`` name."""
    is_there = os.path.lexists(folder / GIT)
    return tuple(named_files(os.path.join(folder, GIT), os.path.realpath(root))) if is_there else ()


def _leads_to(top: str, inner: str, named: str) -> bool:
    """True if a path in the project is what is named, or in it."""
    return f"{os.path.join(top, inner)}/".startswith(f"{named}/")


def any_guarded(root: Path, inners: Iterable[str]) -> bool:
    """True if writing all of these paths makes other programs run something: together they can be a
    repository, of which no single one shows anything."""
    top = os.path.realpath(root)
    written: dict[tuple[str, ...], set[str]] = {}
    named: dict[tuple[str, ...], tuple[str, ...]] = {}  # by folder: a repository can lie in another
    for inner in inners:
        parts = PurePosixPath(inner).parts
        if startup_part(parts):
            return True
        for depth, part in enumerate(parts):
            folder = parts[:depth]
            written.setdefault(folder, set()).add(part)
            if folder not in named:
                named[folder] = _named_by(root, root.joinpath(*folder))
            if any(_leads_to(top, inner, each) for each in named[folder]):
                return True
    return any(
        is_repository(
            {mark for mark in MARKS if mark in names or os.path.lexists(root.joinpath(*folder, mark))}
        )
        for folder, names in written.items()
    )


def real_name(root: Path, inner: str) -> str:
    """A path in the project without the links on the way to it; as it is if it leads outside."""
    name = PurePosixPath(inner)
    top = os.path.realpath(root)
    place = os.path.join(os.path.realpath(os.path.join(top, name.parent)), name.name)
    found = os.path.relpath(place, top)
    return str(name) if found.startswith("..") else found


def _setting_paths(repository: str) -> list[str]:
    paths = [os.path.join(repository, name) for name in _SETTINGS]
    return [path for path in paths if os.path.lexists(path)]


def _place(option: str, path: str) -> GuardedMount | None:
    """None for what cannot be a mount: a link, or nothing."""
    identity = _identity(path)
    is_mountable = identity and not os.path.islink(path) and "\n" not in path
    return GuardedMount(option, path, identity) if is_mountable else None


def _foreign(repositories: Repositories, sockets: Mapping[str, str]) -> list[str]:
    """Of the sockets, by path with their versions: those that no command made."""
    return [path for path, version in sockets.items() if not repositories.is_made(version)]


def _cover(socket: str) -> GuardedMount:
    """An empty file over a socket: to connect to that is refused."""
    return GuardedMount("--ro-bind", socket, _identity(os.devnull), os.devnull)


def _identity(path: str) -> str:
    """Device and inode, of a link itself; empty where there is nothing."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _version(path: str) -> str:
    """Its identity and the time of its last change (ctime), which no program can set."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"


def _deep_version(path: str) -> str:
    """The same of a folder with what is in it; of very many files, the first ones."""
    versions = [_version(path)]
    if _is_folder(path):
        for folder, folders, names in os.walk(path):
            folders.sort()
            versions += [_version(os.path.join(folder, name)) for name in (*folders, *sorted(names))]
            if len(versions) > _FILES_WATCHED_MAX:
                break
    return " ".join(versions[:_FILES_WATCHED_MAX])


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
