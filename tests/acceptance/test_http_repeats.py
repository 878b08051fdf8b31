"""A request that is sent again with its key is the same request, whatever was changed meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import run_web

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("what", ["preferences", "session"])
async def test_a01_a_repeat_is_the_same_turn_after_another_model_was_preferred(
    store: Store, tmp_path: Path, clock: FakeClock, what: str
) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        await store.records.put("local", "settings", "web", {"model": "acme:one"})
        session = (await server.http.post("/api/sessions", json={})).json()
        path = f"/api/sessions/{session['id']}"
        sent: dict[str, Any] = {"json": {"text": "hello"}, "headers": {"Idempotency-Key": "k1"}}
        first = await server.http.post(f"{path}/turns", **sent)
        assert first.status_code == 202, first.text
        assert first.json()["turn"]["model"] == "acme:one"
        if what == "preferences":
            await store.records.put("local", "settings", "web", {"model": "acme:two"})
        else:
            changed = await server.http.patch(path, json={"model": "acme:two"})
            assert changed.status_code == 200
        again = await server.http.post(f"{path}/turns", **sent)
        assert again.status_code == 202, again.text
        assert again.json()["turn"]["id"] == first.json()["turn"]["id"]
        other = await server.http.post(f"{path}/turns", json={"text": "other"}, headers=sent["headers"])
        assert other.json()["code"] == "idempotency_key_reused"
