"""The real server with its files in object storage: keys from the secrets, storage that is away, backup, restore."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from everturn.testing.forks import open_command
from tests.acceptance.command_line import PATIENCE_S, command, environment
from tests.s3_server import KEYS, S3Server

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """``everturn serve`` in a process of its own, killed at the end."""
    async with open_command("serve", "--port", "0", environ=environment(home)) as process:
        said = b""
        while (found := re.search(rb"http://[0-9.]+:[0-9]+", said)) is None:
            said += await process.stdout.receive()
        async with httpx2.AsyncClient(
            base_url=found.group().decode(), timeout=PATIENCE_S, trust_env=False
        ) as http:
            yield http


async def upload(http: httpx2.AsyncClient, content: bytes) -> httpx2.Response:
    headers = {"content-type": "application/octet-stream"}
    return await http.post("/api/uploads", params={"name": "a.txt"}, content=content, headers=headers)


async def test_a_server_keeps_files_in_object_storage(
    data_dir: Path, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    address = s3_server.make_bucket()
    (data_dir / "config.toml").write_text(f'[files]\nurl = "{address}"\n')
    with anyio.fail_after(4 * PATIENCE_S):
        async with serving(data_dir) as http:
            for name, value in (("aws_access_key_id", "test"), ("aws_secret_access_key", "planted-value")):
                done = await command(data_dir, "secrets", "put", name, stdin=f"{value}\n")
                assert done.returncode == 0, done.stderr
                assert value not in done.stdout
            while (stored := await upload(http, b"kept elsewhere")).status_code != 201:
                assert stored.json()["code"] == "storage_away", stored.text  # the keys are not read yet
            path = f"/api/files/{stored.json()['id']}"
            assert (await http.get(path)).content == b"kept elsewhere"
            assert len(s3_server.names(address)) == 2, "the marker and a pack"

            s3_server.go_away()
            try:
                for answer in (await upload(http, b"new"), await http.get(path)):
                    assert answer.status_code == 503
                    assert answer.json()["code"] == "storage_away"
                    assert "planted-value" not in answer.text
                assert (await http.post("/api/sessions", json={"title": "Goes on"})).status_code == 201
                done = await command(data_dir, "doctor")
                assert "storage away" in done.stdout
            finally:
                s3_server.come_back()
            assert (await http.get(path)).content == b"kept elsewhere"
            assert "No problems found" in (await command(data_dir, "doctor")).stdout

        copy, home = tmp_path / "copy", tmp_path / "restored"
        done = await command(data_dir, "backup", str(copy))
        assert done.returncode == 0, done.stderr
        assert f"of files in {address}" in (done.stdout + done.stderr).replace("\n", "")
        done = await command(home, "restore", str(copy))
        assert done.returncode != 0, "it asks first"
        assert f"read from, and deleted in, {address}" in done.stderr
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        done = await command(home, "restore", str(copy), "--yes")
        assert done.returncode == 0, done.stderr
        assert "No problems found" in (await command(home, "doctor")).stdout
