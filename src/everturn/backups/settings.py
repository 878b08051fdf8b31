"""Settings of scheduled backups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid
from everturn.store import parse_address


class BackupSettings(msgspec.Struct, frozen=True):
    """Fields with a description are settings of config.toml."""

    folder: Annotated[
        str | None,
        Meta(
            description="Folder of scheduled backups, by its full path; it must exist. Unset: backups/ in "
            "the data folder, which does not help if that disk fails."
        ),
    ] = None
    url: Annotated[
        str | None,
        Meta(
            description="Object storage in place of a folder: s3://BUCKET/PREFIX, with "
            "?endpoint=https://HOST for another server than Amazon's. Its keys are those of [files]."
        ),
    ] = None
    recipients: Annotated[
        tuple[str, ...],
        Meta(
            description="Public keys (age1… or ssh-…) that backups are encrypted for. The server cannot read "
            "them then: keep the identity elsewhere."
        ),
    ] = ()
    passphrase_file: Annotated[
        str | None,
        Meta(description="File whose first line encrypts backups, in place of `recipients`; its full path."),
    ] = None
    at: Annotated[
        str | None,
        Meta(description="Time of a backup each day, such as 03:30, in the time zone of [budget]."),
    ] = None
    every_h: Annotated[
        int, Meta(ge=0, le=8760, description="Hours between two backups, in place of `at`; 0: none.")
    ] = 0
    keep_daily: Annotated[int, Meta(ge=1, description="Days of which the last backup is kept.")] = 7
    keep_weekly: Annotated[int, Meta(ge=0, description="Weeks of which the last backup is kept.")] = 4
    drill_days: Annotated[
        int,
        Meta(ge=0, le=365, description="Days between two trial restores of the newest backup; 0: none."),
    ] = 7

    def __post_init__(self) -> None:
        """Raises Invalid."""
        if self.folder is not None and not os.path.isabs(os.path.expanduser(self.folder)):
            raise Invalid(f"{self.folder!r} is not a full path.", hint="Like /mnt/backups.", key="folder")
        if self.url is not None:
            if self.folder is not None:
                raise Invalid("folder is set as well.", hint="Set one of them.", key="url")
            parse_address(self.url)
        if self.passphrase_file is not None:
            if self.recipients:
                raise Invalid("recipients is set as well.", hint="Set one of them.", key="passphrase_file")
            if not os.path.isabs(os.path.expanduser(self.passphrase_file)):
                raise Invalid(
                    f"{self.passphrase_file!r} is not a full path.",
                    hint="Like /etc/everturn/backup-passphrase.",
                    key="passphrase_file",
                )
        if self.at is not None:
            if self.every_h:
                raise Invalid("every_h is set as well.", hint="Set one of them.", key="at")
            minute_of_day(self.at)

    @property
    def is_scheduled(self) -> bool:
        return bool(self.at or self.every_h)

    @property
    def is_encrypted(self) -> bool:
        return bool(self.recipients or self.passphrase_file)

    def named_folder(self) -> Path | None:
        return Path(self.folder).expanduser() if self.folder else None


def minute_of_day(text: str) -> int:
    """Raises Invalid if the text is not a time of day."""
    hour, _, minute = text.partition(":")
    if len(text) == 5 and hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60:
        return int(hour) * 60 + int(minute)
    raise Invalid(f"{text!r} is not a time of day.", hint="Write it as 03:30.", key="at")
