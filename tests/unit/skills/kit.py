"""Skills for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from everturn.skills import RawFile, SkillContent, make_content

OWNER = "ada"


def skill_text(name: str, description: str = "Care for backups.", body: str = "1. Look first.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


def content_of(
    name: str, files: Mapping[str, bytes] | None = None, body: str = "1. Look first."
) -> SkillContent:
    raw = {"SKILL.md": RawFile(skill_text(name, body=body).encode())}
    raw.update({path: RawFile(data, path.endswith(".sh")) for path, data in (files or {}).items()})
    return make_content(raw, name)


def write_skill(root: Path, name: str, files: Mapping[str, bytes] | None = None, body: str = "Look.") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(skill_text(name, body=body))
    for path, data in (files or {}).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        if path.endswith(".sh"):
            place.chmod(0o755)
    return folder


def zip_of(members: Mapping[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()
