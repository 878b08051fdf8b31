"""Trees made of parts of others: some paths of another one, or only what patterns name."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.errors import Invalid
from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Tree, encode_tree
from everturn.workspace.diff import Load
from everturn.workspace.ignore import IgnoreRule, parse_rule
from everturn.workspace.scan import Put

_NEW_FOLDER_MODE = 0o755


def to_path(text: str) -> bytes:
    """A path in a tree, as a user names it. Raises Invalid if it leads out or nowhere."""
    names = text.split("/")
    if "\0" in text or any(name in ("", ".", "..") for name in names):
        raise Invalid(f"{text[:200]!r} is not a path in the workspace.", hint="Like notes/plan.md.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{text[:200]!r} is not a path.") from error


def find_entry(load: Load, tree: str, path: bytes) -> Entry | None:
    """What a tree has at this path; None if there is nothing."""
    found: Entry | None = Entry(b"", Kind.FOLDER, sha256=tree)
    for name in path.split(b"/"):
        if found is None or found.kind is not Kind.FOLDER:
            return None
        found = next((entry for entry in load(found.sha256).entries if entry.name == name), None)
    return found


def overlay(load: Load, put: Put, base: str, source: str, paths: Sequence[bytes]) -> str:
    """The tree ``base``, in which these paths are as in ``source``; what is not there is removed."""
    for path in paths:
        base = _replace(load, put, base, path.split(b"/"), find_entry(load, source, path))
    return base


def select(load: Load, put: Put, tree: str, patterns: Sequence[str]) -> str:
    """Only what the patterns name, in the syntax of .gitignore; a folder that is named comes with all that is
    in it. Raises Invalid if nothing is named."""
    rules = [rule for rule in map(parse_rule, patterns) if rule is not None]
    if len(rules) < len(patterns) or any(rule.includes for rule in rules):
        raise Invalid(f"{list(patterns)!r} are not patterns for files.", hint="Like src/ or *.md.")
    selected = _select(load, put, tree, rules, ())
    if selected == EMPTY_TREE:
        raise Invalid(f"No file matches {', '.join(patterns)}.", hint="Like src/ or *.md.")
    return selected


def _select(load: Load, put: Put, tree: str, rules: Sequence[IgnoreRule], above: tuple[str, ...]) -> str:
    entries: list[Entry] = []
    for entry in load(tree).entries:
        path = (*above, entry.name.decode("utf-8", "surrogateescape"))
        is_folder = entry.kind is Kind.FOLDER
        if any(rule.matches(path, is_folder=is_folder) for rule in rules):
            entries.append(entry)
        elif is_folder:
            inside = _select(load, put, entry.sha256, rules, path)
            if inside != EMPTY_TREE:
                size = len(encode_tree(load(inside)))
                entries.append(Entry(entry.name, Kind.FOLDER, entry.mode, size, inside))
    if not entries:
        return EMPTY_TREE
    ((sha256, _),) = put([encode_tree(Tree(tuple(entries)))])
    return sha256


def _replace(load: Load, put: Put, tree: str, names: Sequence[bytes], entry: Entry | None) -> str:
    old = load(tree)
    entries = {one.name: one for one in old.entries}
    name, below = names[0], names[1:]
    if below:
        folder = entries.get(name)
        is_folder = folder is not None and folder.kind is Kind.FOLDER
        if entry is None and not is_folder:
            return tree  # it is not there already
        mode = folder.mode if folder is not None and is_folder else _NEW_FOLDER_MODE
        inside = folder.sha256 if folder is not None and is_folder else EMPTY_TREE
        changed = _replace(load, put, inside, below, entry)
        entry = Entry(name, Kind.FOLDER, mode, len(encode_tree(load(changed))), changed)
    if entry is None:
        entries.pop(name, None)
    else:
        entries[name] = entry
    ordered = tuple(sorted(entries.values(), key=lambda one: one.name))
    data = encode_tree(Tree(ordered, old.unlisted))
    ((sha256, _),) = put([data])
    return sha256
