"""What the audit log holds."""

from __future__ import annotations

import json
from pathlib import Path

from everturn.domain.audit import AuditLog


def audit_of(home: Path) -> list[tuple[str, str]]:
    lines = (home / "audit.jsonl").read_text().splitlines()
    return [(entry["what"], entry.get("detail", "")) for entry in map(json.loads, lines)]


class KeptAudit(AuditLog):
    """Keeps what is written in memory: what, by whom, detail."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    async def write(self, what: str, by: str, *, address: str = "", detail: str = "") -> None:
        self.lines.append((what, by, detail))
