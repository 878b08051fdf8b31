"""Backups as archives: encrypted, read back, and refused if anything about them is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyrage
import pytest

from everturn.backups import BackupSettings
from everturn.backups.encryption import Key, make_lock, read_identities, read_passphrase, unwrap
from everturn.backups.sealed import FolderParts, PartFile, SealedList, read_key_file, read_list, seal, unseal
from everturn.backups.watch import BackupWatch
from everturn.domain.errors import Invalid, Stopped, StoreBroken

PASSPHRASE = "correct horse battery staple"
SECRET_NAME = "a-name-that-nobody-may-see.txt"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "workspaces").mkdir(parents=True)
    (folder / "workspaces" / SECRET_NAME).write_text("what is in it\n" * 20_000)
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> FolderParts:
    (tmp_path / "sealed").mkdir()
    return FolderParts(tmp_path / "sealed")


@pytest.fixture
def passphrase_file(tmp_path: Path) -> Path:
    path = tmp_path / "passphrase"
    path.write_text(f"{PASSPHRASE}\n")
    path.chmod(0o600)
    return path


def _identity_file(tmp_path: Path, identity: object) -> Path:
    path = tmp_path / "identity.txt"
    path.write_text(f"# created: today\n# public key: age1...\n{identity}\n")
    return path


def _seal(source: Path, parts: FolderParts, settings: BackupSettings) -> SealedList:
    return seal(source, parts, make_lock(settings), BackupWatch())


def test_two_identities_open_what_was_encrypted_for_both_and_no_third_does(
    source: Path, parts: FolderParts, tmp_path: Path
) -> None:
    mine, other, third = (pyrage.x25519.Identity.generate() for _ in range(3))
    done = _seal(source, parts, BackupSettings(recipients=(str(mine.to_public()), str(other.to_public()))))
    assert (done.is_encrypted, done.has_key_file) == (True, False)
    assert read_list(parts) == done
    for number, identity in enumerate((mine, other)):
        key = read_identities(_identity_file(tmp_path, identity))
        unseal(parts, done, key, tmp_path / f"target-{number}", BackupWatch())
        found = tmp_path / f"target-{number}" / "workspaces" / SECRET_NAME
        assert found.read_text() == "what is in it\n" * 20_000
    with pytest.raises(Invalid, match="not encrypted for this key"):
        unseal(parts, done, Key([third]), tmp_path / "target-3", BackupWatch())


def test_the_passphrase_opens_it_also_with_the_program_age_alone(
    source: Path, parts: FolderParts, passphrase_file: Path, tmp_path: Path
) -> None:
    done = _seal(source, parts, BackupSettings(passphrase_file=str(passphrase_file)))
    key_file = read_key_file(parts)
    unseal(
        parts, done, unwrap(key_file, read_passphrase(passphrase_file)), tmp_path / "target", BackupWatch()
    )
    assert (tmp_path / "target" / "workspaces" / SECRET_NAME).exists()
    # As 'age -d -i key.age' does: the key file is an identity file that is encrypted with the passphrase.
    identity = pyrage.x25519.Identity.from_str(pyrage.passphrase.decrypt(key_file, PASSPHRASE).decode())
    assert SECRET_NAME.encode() in pyrage.decrypt(
        (tmp_path / "sealed" / "backup.tar.age").read_bytes(), [identity]
    )
    with pytest.raises(Invalid, match="not the one"):
        unwrap(key_file, "another passphrase")


def test_an_encrypted_backup_tells_no_name_and_no_word(
    source: Path, parts: FolderParts, tmp_path: Path
) -> None:
    settings = BackupSettings(recipients=(str(pyrage.x25519.Identity.generate().to_public()),))
    _seal(source, parts, settings)
    written = list((tmp_path / "sealed").iterdir())
    assert sorted(path.name for path in written) == ["backup.tar.age", "sealed.json"]
    for path in written:
        assert SECRET_NAME.encode() not in path.read_bytes()
        assert b"what is in it" not in path.read_bytes()
        assert b"workspaces" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("place", [30, -30, 140_000])
def test_one_changed_bit_is_found(source: Path, parts: FolderParts, tmp_path: Path, place: int) -> None:
    identity = pyrage.x25519.Identity.generate()
    done = _seal(source, parts, BackupSettings(recipients=(str(identity.to_public()),)))
    file = tmp_path / "sealed" / "backup.tar.age"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreBroken, match="Nothing was restored"):
        unseal(parts, done, Key([identity]), tmp_path / "target", BackupWatch())


@pytest.mark.parametrize("settings", [BackupSettings(), None], ids=["plain", "encrypted"])
def test_a_part_that_is_cut_or_gone_is_said(
    source: Path, parts: FolderParts, tmp_path: Path, settings: BackupSettings | None
) -> None:
    identity = pyrage.x25519.Identity.generate()
    done = _seal(source, parts, settings or BackupSettings(recipients=(str(identity.to_public()),)))
    file = tmp_path / "sealed" / done.parts[0].name
    file.write_bytes(file.read_bytes()[:-100_000])
    key = None if settings else Key([identity])
    with pytest.raises(StoreBroken):
        unseal(parts, done, key, tmp_path / "cut", BackupWatch())
    file.unlink()
    with pytest.raises(StoreBroken, match="is missing"):
        unseal(parts, done, key, tmp_path / "gone", BackupWatch())


class _LyingParts(FolderParts):
    """A disk that writes other bytes than it was given."""

    def begin(self, name: str) -> PartFile:
        class Lying:
            def write(self, data: bytes, /) -> None:
                file.write(bytes(byte ^ 1 for byte in data[:1]) + data[1:])

            def finish(self) -> None:
                file.finish()

        file = super().begin(name)
        return Lying()


def test_what_was_not_written_as_it_should_be_is_found_at_once(source: Path, tmp_path: Path) -> None:
    (tmp_path / "lying").mkdir()
    settings = BackupSettings(recipients=(str(pyrage.x25519.Identity.generate().to_public()),))
    with pytest.raises(StoreBroken, match="did not read back"):
        seal(source, _LyingParts(tmp_path / "lying"), make_lock(settings), BackupWatch())
    assert not (tmp_path / "lying" / "sealed.json").exists()


def test_a_full_disk_and_a_stop_are_said_as_what_they_are(source: Path, tmp_path: Path) -> None:
    lock = make_lock(BackupSettings(recipients=(str(pyrage.x25519.Identity.generate().to_public()),)))
    (tmp_path / "stopped").mkdir()
    watch = BackupWatch()
    watch.stop()
    with pytest.raises(Stopped, match="was stopped"):
        seal(source, FolderParts(tmp_path / "stopped"), lock, watch)

    class Full(FolderParts):
        def begin(self, name: str) -> PartFile:
            raise OSError(28, "No space left on device", name)

    with pytest.raises(OSError, match="No space left"):
        seal(source, Full(tmp_path / "stopped"), lock, BackupWatch())


def test_a_list_with_other_names_opens_no_other_file(
    source: Path, parts: FolderParts, tmp_path: Path
) -> None:
    _seal(source, parts, BackupSettings())
    list_file = tmp_path / "sealed" / "sealed.json"
    for name in ("../source/workspaces", "/etc/passwd", "backup.tar/../../x", "config.toml"):
        list_file.write_text(list_file.read_text().replace("backup.tar", name))
        with pytest.raises(Exception, match="Nothing was restored"):
            read_list(parts)
        list_file.write_text(list_file.read_text().replace(name, "backup.tar"))
    target = tmp_path / "sealed" / "backup.tar"
    target.unlink()
    target.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic link"):
        unseal(parts, read_list(parts), None, tmp_path / "target", BackupWatch())


def test_settings_and_keys_that_are_wrong_are_explained(passphrase_file: Path, tmp_path: Path) -> None:
    identity = pyrage.x25519.Identity.generate()
    with pytest.raises(Invalid, match="not a public key of age"):
        make_lock(BackupSettings(recipients=("age1wrong",)))
    with pytest.raises(Invalid, match="is a secret key"):
        make_lock(BackupSettings(recipients=(str(identity),)))
    with pytest.raises(Invalid, match="recipients is set as well"):
        BackupSettings(recipients=(str(identity.to_public()),), passphrase_file="/etc/passphrase")
    passphrase_file.chmod(0o644)
    with pytest.raises(Invalid, match="Other users can read"):
        make_lock(BackupSettings(passphrase_file=str(passphrase_file)))
    passphrase_file.chmod(0o600)
    passphrase_file.write_text("short\n")
    with pytest.raises(Invalid, match="fewer than 12"):
        make_lock(BackupSettings(passphrase_file=str(passphrase_file)))
    passphrase_file.unlink()
    with pytest.raises(Invalid, match="cannot be read"):
        make_lock(BackupSettings(passphrase_file=str(passphrase_file)))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(Invalid, match="no key"):
        read_identities(tmp_path / "empty")


def test_an_ssh_key_opens_what_was_encrypted_for_it(source: Path, parts: FolderParts, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (tmp_path / "id_ed25519").write_bytes(private)
    done = _seal(source, parts, BackupSettings(recipients=(public.decode(),)))
    unseal(parts, done, read_identities(tmp_path / "id_ed25519"), tmp_path / "target", BackupWatch())
    assert (tmp_path / "target" / "workspaces" / SECRET_NAME).exists()
    shutil.rmtree(tmp_path / "target")
