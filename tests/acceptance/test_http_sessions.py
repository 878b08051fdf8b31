"""Sessions and turns over real HTTP."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.tool import Verdict
from everturn.store import Store
from everturn.testing import CallTool, FakeClock, FakeTool
from everturn.testing.models import Say, Wait
from everturn.testing.web_server import PATIENCE_S, run_web
from tests.blobs import lose_bytes

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_everything_can_be_read_again(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Hello there.") as server:
        session = await server.new_session(title="First")
        frames = await server.run(session["id"], "hi")
        assert frames[0].event == "turn.accepted"
        assert frames[-1].event == "turn.completed"
        assert [int(frame.id) for frame in frames] == list(range(1, len(frames) + 1))
        page = (await server.http.get(f"/api/sessions/{session['id']}/messages")).json()
        assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
        assert page["position"] == len(frames) == page["replay_from"]
        assert page["turns"][0]["state"] == "completed"


async def test_messages_of_a_running_turn_say_where_to_replay_from(store: Store, tmp_path: Path) -> None:
    held = anyio.Event()
    async with run_web(store, tmp_path, "One.", [Say("Two"), Wait(held), Say(" done.")]) as server:
        session = await server.new_session()
        first = await server.run(session["id"])
        await server.send(session["id"], "again")
        await server.read_until(f"/api/sessions/{session['id']}/events?after={first[-1].id}", "text.delta")
        page = (await server.http.get(f"/api/sessions/{session['id']}/messages")).json()
        assert page["turns"][-1]["state"] == "running"
        path = f"/api/sessions/{session['id']}/events?after={page['replay_from']}"
        held.set()
        frames = await server.read_until(path, "turn.completed")
        assert frames[0].event == "turn.accepted"
        assert {frame.json["turn_id"] for frame in frames} == {page["turns"][-1]["id"]}


async def test_the_list_is_paged_newest_first(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        made = []
        for number in range(5):
            await clock.advance(1)
            made.append((await server.new_session(title=f"Number {number}"))["id"])
        seen, cursor = [], ""
        while True:
            page = (await server.http.get(f"/api/sessions?limit=2{cursor}")).json()
            seen += [item["id"] for item in page["items"]]
            if "cursor" not in page:
                break
            cursor = f"&cursor={page['cursor']}"
        assert seen == made[::-1]
        found = (await server.http.get("/api/sessions?q=Number 3")).json()
        assert [item["title"] for item in found["items"]] == ["Number 3"]


async def test_a_stale_tab_gets_the_current_session(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        session = await server.new_session(title="Old")
        path = f"/api/sessions/{session['id']}"
        tag = (await server.http.get(path)).headers["etag"]
        renamed = await server.http.patch(path, json={"title": "New"}, headers={"If-Match": tag})
        assert renamed.status_code == 200
        assert renamed.headers["etag"] != tag
        stale = await server.http.patch(path, json={"title": "Mine"}, headers={"If-Match": tag})
        assert stale.status_code == 409
        assert stale.headers["content-type"] == "application/problem+json"
        problem = stale.json()
        assert problem["code"] == "stale_version"
        assert problem["session"]["title"] == "New"
        assert problem["current"] == problem["session"]["version"]


async def test_undo_redo_retry_edit_and_branch(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "one", "two", "three") as server:
        session_id = (await server.new_session())["id"]
        path = f"/api/sessions/{session_id}"
        await server.run(session_id, "first")

        naked = await server.http.post(f"{path}/undo")
        assert (naked.status_code, naked.json()["code"]) == (428, "precondition_needed")
        undone = await server.http.post(f"{path}/undo", headers={"Idempotency-Key": "u1"})
        again = await server.http.post(f"{path}/undo", headers={"Idempotency-Key": "u1"})
        assert undone.status_code == again.status_code == 200
        assert undone.json() == again.json()
        assert (await server.http.get(f"{path}/messages")).json()["messages"] == []
        redone = await server.http.post(f"{path}/redo", headers={"If-Match": undone.headers["etag"]})
        assert redone.status_code == 200
        assert len((await server.http.get(f"{path}/messages")).json()["messages"]) == 2

        retried = await server.http.post(f"{path}/retry", headers={"Idempotency-Key": "r1"})
        assert retried.status_code == 202
        await server.read_until(f"{path}/events?after={retried.json()['cursor']}", "turn.completed")
        edited = await server.http.post(
            f"{path}/edit", json={"text": "other"}, headers={"Idempotency-Key": "e1"}
        )
        await server.read_until(f"{path}/events?after={edited.json()['cursor']}", "turn.completed")
        page = (await server.http.get(f"{path}/messages")).json()
        assert [m["parts"][0]["text"] for m in page["messages"]] == ["other", "three"]
        assert page["turns"][0]["siblings"] == 3

        first = retried.json()["turn"]["id"]
        chosen = await server.http.post(
            f"{path}/select", json={"turn_id": first}, headers={"Idempotency-Key": "s1"}
        )
        assert chosen.json()["head"] == first
        branched = await server.http.post(f"{path}/branch", headers={"Idempotency-Key": "b1"})
        assert branched.status_code == 201
        assert branched.json()["id"] != session_id


async def test_a_deleted_session_is_hidden_at_once_and_can_come_back(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        session_id = (await server.new_session(title="Doomed"))["id"]
        path = f"/api/sessions/{session_id}"
        deleted = await server.http.delete(path)
        assert deleted.status_code == 202
        assert (await server.http.get("/api/sessions")).json()["items"] == []
        assert (await server.http.get("/api/sessions?archived=true")).json()["items"] == []
        for gone in (path, f"{path}/messages", f"{path}/events", f"{path}/export"):
            assert (await server.http.get(gone)).status_code == 410
        assert (await server.http.post(f"{path}/turns", json={"text": "x"})).status_code == 410
        restored = await server.http.post(f"{path}/restore")
        assert restored.status_code == 200
        assert [s["title"] for s in (await server.http.get("/api/sessions")).json()["items"]] == ["Doomed"]
        again = await server.http.post(f"{path}/restore")
        assert (again.status_code, again.json()["code"]) == (409, "wrong_state")


async def test_a_deletion_is_carried_out_after_its_time_even_after_a_restart(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        first = (await server.new_session())["id"]
        await server.http.delete(f"/api/sessions/{first}")
        await clock.someone_sleeps(10)
        await clock.advance(11)
        late = await server.http.post(f"/api/sessions/{first}/restore")
        assert late.status_code == 410
        second = (await server.new_session())["id"]
        await server.http.delete(f"/api/sessions/{second}")
    await clock.advance(20)
    async with run_web(store, tmp_path, clock=clock) as server:
        with anyio.fail_after(PATIENCE_S):
            while await store.sessions.deletions():
                await anyio.lowlevel.checkpoint()
        answer = await server.http.get(f"/api/sessions/{second}")
        assert answer.status_code == 410


async def test_the_same_key_is_the_same_turn_and_another_body_is_refused(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, "Yes.") as server:
        session_id = (await server.new_session())["id"]
        path, headers = f"/api/sessions/{session_id}/turns", {"Idempotency-Key": "k1"}
        first = await server.http.post(path, json={"text": "hi"}, headers=headers)
        second = await server.http.post(path, json={"text": "hi"}, headers=headers)
        assert first.status_code == second.status_code == 202
        assert second.json()["turn"]["id"] == first.json()["turn"]["id"]
        assert second.json()["is_repeat"]
        other = await server.http.post(path, json={"text": "ho"}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_client_that_reads_its_own_write_finds_the_accepted_turn(
    store: Store, tmp_path: Path
) -> None:
    """Whether a worker has claimed it by then or not: until then, it is on no path of the transcript."""
    async with run_web(store, tmp_path, "Yes.") as server:
        session_id = (await server.new_session())["id"]
        turn_id = (await server.send(session_id))["turn"]["id"]
        page = (await server.http.get(f"/api/sessions/{session_id}/messages")).json()
        assert turn_id in [turn["id"] for turn in (*page["turns"], *page.get("queued", ()))]
        await server.read_until(f"/api/sessions/{session_id}/events?after=0", "turn.completed")
        page = (await server.http.get(f"/api/sessions/{session_id}/messages")).json()
        assert "queued" not in page
        assert [message["turn_id"] for message in page["messages"]] == [turn_id, turn_id]


async def test_a_running_turn_is_cancelled_and_the_queue_is_edited(store: Store, tmp_path: Path) -> None:
    never = anyio.Event()
    async with run_web(store, tmp_path, [Say("Par"), Wait(never)], "Second.") as server:
        session_id = (await server.new_session())["id"]
        path = f"/api/sessions/{session_id}"
        running = await server.send(session_id)
        await server.read_until(f"{path}/events", "text.delta")
        queued = (await server.send(session_id, "later"))["turn"]["id"]
        dropped = (await server.send(session_id, "never"))["turn"]["id"]
        items = (await server.http.get(f"{path}/queue")).json()["items"]
        assert [item["id"] for item in items] == [queued, dropped]
        page = (await server.http.get(f"{path}/messages")).json()
        assert [(turn["id"], turn["text"]) for turn in page["queued"]] == [
            (queued, "later"),
            (dropped, "never"),
        ]
        older = await server.http.get(f"{path}/messages", params={"before": page["messages"][0]["id"]})
        assert "queued" not in older.json()
        changed = await server.http.patch(f"{path}/queue/{queued}", json={"text": "sooner"})
        assert changed.status_code == 200
        assert (await server.http.delete(f"{path}/queue/{dropped}")).status_code == 204
        busy = await server.http.post(f"{path}/undo", headers={"Idempotency-Key": "u"})
        assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")
        cancelled = await server.http.post(f"/api/turns/{running['turn']['id']}/cancel")
        assert cancelled.json()["state"] == "cancelled"
        await server.read_until(f"{path}/events", "turn.completed")
        page = (await server.http.get(f"{path}/messages")).json()
        words = [m["parts"][0]["text"] for m in page["messages"]]
        assert words == ["hello", "Par", "sooner", "Second."]


async def test_an_approval_is_listed_decided_and_audited(store: Store, tmp_path: Path) -> None:
    tool = FakeTool("deploy", "deployed")
    script = ([CallTool("deploy", {"to": "production"})], "It is live.")
    async with run_web(store, tmp_path, *script, tools=[tool], rules={"deploy": Verdict.ASK}) as server:
        session_id = (await server.new_session())["id"]
        frames = await server.run(session_id)
        assert frames[-1].event == "turn.waiting"
        (ask,) = (await server.http.get("/api/approvals")).json()["items"]
        wrong = await server.http.post(f"/api/questions/{ask['id']}", json={"answer": "yes"})
        assert wrong.json()["code"] == "wrong_state"
        assert tool.calls == []
        decided = await server.http.post(f"/api/approvals/{ask['id']}", json={"decision": "once"})
        assert decided.status_code == 200
        await server.read_until(f"/api/sessions/{session_id}/events", "turn.completed")
        assert len(tool.calls) == 1
        entries = (await server.http.get("/api/audit")).json()["items"]
        assert entries[0]["what"] == "approval"
        assert "once: deploy" in entries[0]["detail"]


async def test_an_approved_call_can_be_changed_first(store: Store, tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    tool = FakeTool("deploy", "deployed", parameters=parameters)
    script = ([CallTool("deploy", {"to": "production"})], "It is on trial.")
    async with run_web(store, tmp_path, *script, tools=[tool], rules={"deploy": Verdict.ASK}) as server:
        session_id = (await server.new_session())["id"]
        await server.run(session_id)
        (ask,) = (await server.http.get("/api/approvals")).json()["items"]
        path = f"/api/approvals/{ask['id']}"
        refused = await server.http.post(path, json={"decision": "once", "arguments": '{"to": 5}'})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        assert "to must be of type string" in refused.json()["detail"]
        assert len((await server.http.get("/api/approvals")).json()["items"]) == 1
        changed = await server.http.post(path, json={"decision": "once", "arguments": '{"to": "staging"}'})
        assert changed.json()["edited"] == '{"to": "staging"}'
        await server.read_until(f"/api/sessions/{session_id}/events", "turn.completed")
        assert [call.arguments for call in tool.calls] == [{"to": "staging"}]
        page = (await server.http.get(f"/api/sessions/{session_id}/messages")).json()
        (result,) = [p for m in page["messages"] for p in m["parts"] if p["type"] == "result"]
        assert result["arguments"] == '{"to": "staging"}'
        entries = (await server.http.get("/api/audit")).json()["items"]
        assert "once, changed: deploy" in entries[0]["detail"]


async def test_a_queued_message_is_moved_unless_the_session_moved_on(store: Store, tmp_path: Path) -> None:
    never = anyio.Event()
    async with run_web(store, tmp_path, [Say("Par"), Wait(never)]) as server:
        session_id = (await server.new_session())["id"]
        path = f"/api/sessions/{session_id}"
        await server.send(session_id)
        await server.read_until(f"{path}/events", "text.delta")
        one = (await server.send(session_id, "one"))["turn"]["id"]
        two = (await server.send(session_id, "two"))["turn"]["id"]
        version = (await server.http.get(path)).json()["version"]
        match = {"If-Match": f'"{version}"'}
        moved = await server.http.patch(f"{path}/queue/{two}", json={"place": 0}, headers=match)
        assert moved.status_code == 200, moved.text
        stale = await server.http.patch(f"{path}/queue/{one}", json={"place": 0}, headers=match)
        assert (stale.status_code, stale.json()["code"]) == (409, "stale_version")
        empty = await server.http.patch(f"{path}/queue/{one}", json={})
        assert (empty.status_code, empty.json()["code"]) == (422, "invalid")
        items = (await server.http.get(f"{path}/queue")).json()["items"]
        assert [item["id"] for item in items] == [two, one]


async def test_search_finds_what_was_said(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "The capital is Paris.") as server:
        session_id = (await server.new_session())["id"]
        await server.run(session_id, "capital of France?")
        await store.search.index()
        hits = (await server.http.get("/api/search?q=Paris")).json()["items"]
        assert [hit["session_id"] for hit in hits] == [session_id]


async def test_an_exported_session_imports_as_an_equal_one(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "It is a ```fence```.") as server:
        uploaded = await server.http.post(
            "/api/uploads?name=../../etc/notes.txt",
            content=b"some notes",
            headers={"Content-Type": "application/octet-stream"},
        )
        session_id = (await server.new_session(title="Trip"))["id"]
        await server.run(session_id, "look", attachments=[uploaded.json()["id"]])
        path = f"/api/sessions/{session_id}"
        exported = (await server.http.get(f"{path}/export")).json()
        assert exported["format"] == "everturn.session"
        imported = await server.http.post("/api/sessions/import", json=exported)
        assert imported.status_code == 201, imported.text
        copy = imported.json()
        assert copy["id"] != session_id
        assert copy["title"] == "Trip"
        once = (await server.http.get(f"{path}/messages")).json()["messages"]
        twice = (await server.http.get(f"/api/sessions/{copy['id']}/messages")).json()["messages"]

        def said(messages: list[dict]) -> list[tuple[str, list[str | None]]]:
            return [
                (m["role"], [part.get("text") or part.get("name") for part in m["parts"]]) for m in messages
            ]

        assert said(once) == said(twice)
        (attachment,) = [part for part in twice[0]["parts"] if part["type"] == "attachment"]
        content = await server.http.get(f"/api/files/{attachment['file_id']}")
        assert content.content == b"some notes"
        markdown = await server.http.get(f"{path}/export?format=md")
        assert markdown.headers["content-disposition"].startswith('attachment; filename="Trip.md"')
        assert "# Trip" in markdown.text
        assert "It is a ```fence```." in markdown.text
        html = await server.http.get(f"{path}/export?format=html")
        assert "sandbox" in html.headers["content-security-policy"]


@pytest.mark.parametrize("harm", ["gone", "cut"])
async def test_a_file_whose_bytes_are_not_there_is_a_problem_that_names_it(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    async with run_web(store, tmp_path) as server:
        raw = {"Content-Type": "application/octet-stream"}
        sent = await server.http.post("/api/uploads?name=notes.txt", content=b"some notes", headers=raw)
        file_id = sent.json()["id"]
        owner = (await server.http.get("/api/me")).json()["owner"]
        await lose_bytes(store, owner, file_id, left=0 if harm == "gone" else 4)
        answer = await server.http.get(f"/api/files/{file_id}")
        assert (answer.status_code, answer.json()["code"]) == (404, "file_missing")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "'notes.txt'" in answer.json()["detail"]
        assert "doctor" in answer.json()["hint"]
        assert not [record for record in caplog.records if record.exc_info]
    missing, damaged = await store.upkeep.check()
    assert (missing.what, damaged.what) == ("file missing", "bytes damaged")
    assert file_id in missing.detail


async def test_an_import_that_does_not_fit_is_refused(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Fine.") as server:
        session_id = (await server.new_session())["id"]
        await server.run(session_id)
        good = (await server.http.get(f"/api/sessions/{session_id}/export")).json()
        for change in ({"version": 99}, {"format": "other"}, {"turns": []}):
            answer = await server.http.post("/api/sessions/import", json=good | change)
            assert (answer.status_code, answer.json()["code"]) == (422, "bad_import")
        for said in ({"title": "x" * 201}, {"tags": ["x"] * 51}, {"key": "x" * 201}):
            document = good | {"session": good["session"] | said}
            answer = await server.http.post("/api/sessions/import", json=document)
            assert answer.status_code == 422, said
        listed = (await server.http.get("/api/sessions")).json()["items"]
        assert len(listed) == 1


async def test_health_metrics_and_the_description_of_the_api(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Ok.") as server:
        assert (await server.http.get("/healthz")).json()["status"] == "ok"
        assert (await server.http.get("/readyz")).json()["status"] == "ready"
        session_id = (await server.new_session())["id"]
        await server.run(session_id)
        metrics = (await server.http.get("/metrics")).text
        assert 'everturn_http_requests_total{method="POST",route="/api/sessions",status="201"} 1' in metrics
        assert "everturn_streams_open" in metrics
        assert 'everturn_store_states{state="completed"} 1' in metrics
        events = len(await server.read_until(f"/api/sessions/{session_id}/events?follow=0", "stream.end")) - 1
        assert (
            f"# TYPE everturn_store_events_total counter\neverturn_store_events_total {events}\n" in metrics
        )
        assert "everturn_store_is_failing 0" in metrics
        assert "everturn_store_asks 0" in metrics
        for figure in ("commits_total", "writes_per_commit", "commit_seconds_p50", "commit_seconds_p99"):
            assert f"\neverturn_writer_{figure} " in metrics
        health = (await server.http.get("/api/health")).json()
        assert (health["status"], health["sessions"], health["turns"]) == ("ready", 1, 1)
        assert (health["messages"], health["turns_running"], health["turns_interrupted"]) == (2, 0, 0)
        assert 0 < health["commit_ms_p50"] <= health["commit_ms_p99"]
        described = (await server.http.get("/openapi.json")).json()
        assert described["openapi"] == "3.1.0"
        events = described["paths"]["/api/sessions/{session}/events"]["get"]["responses"]["200"]["content"]
        assert list(events) == ["text/event-stream"]
        assert "TurnCompleted" in described["components"]["schemas"]
        page = await server.http.get("/docs")
        assert "/api/sessions/{session}/turns" in page.text
        assert "http://" not in page.text
        assert "https://" not in page.text
        assert "<script" not in page.text


async def test_without_a_page_the_root_says_so_and_the_api_answers(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        root = await server.http.get("/")
        assert root.status_code == 200
        assert "not built" in root.text
        missing = await server.http.get("/nowhere.js")
        assert (missing.status_code, missing.json()["code"]) == (404, "no_route")
        wrong = await server.http.put("/api/sessions", json={})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")


async def test_the_built_page_is_served_with_its_caching(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><div id=app></div>")
    (page / "assets" / "index-B1c2D3e4.js").write_text("console.log(1)")
    (page / "assets" / "index-B1c2D3e4.js.gz").write_bytes(b"packed")
    (tmp_path / "secret.txt").write_text("hidden words")
    async with run_web(store, tmp_path, settings={"page": page}) as server:
        root = await server.http.get("/")
        assert root.headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in root.headers["content-security-policy"]
        deep = await server.http.get("/s/ses_whatever")
        assert deep.text == root.text
        fresh = await server.http.get("/", headers={"If-None-Match": root.headers["etag"]})
        assert fresh.status_code == 304
        plain = await server.http.get("/assets/index-B1c2D3e4.js", headers={"Accept-Encoding": "identity"})
        assert plain.text == "console.log(1)"
        assert "immutable" in plain.headers["cache-control"]
        assert plain.headers["content-type"].startswith("text/javascript")
        async with server.http.stream(
            "GET", "/assets/index-B1c2D3e4.js", headers={"Accept-Encoding": "gzip"}
        ) as packed:
            assert packed.headers["content-encoding"] == "gzip"
        for sneaky in ("/../secret.txt", "/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt"):
            assert "hidden words" not in (await server.http.get(sneaky)).text


async def test_under_a_base_path_everything_is_where_the_proxy_says(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"base_path": "/everturn/"}) as server:
        assert server.url.endswith("/everturn/")
        root = server.url.removesuffix("everturn/")
        assert (await server.http.get(f"{root}everturn/api/sessions")).status_code == 200
        assert (await server.http.get(f"{root}everturn/openapi.json")).json()["servers"] == [
            {"url": "/everturn"}
        ]
        bare = await server.http.get(f"{root}everturn")
        assert (bare.status_code, bare.headers["location"]) == (308, "/everturn/")


async def test_sessions_and_messages_are_found_by_tag_project_role_and_time(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, "An owl.", "A wren.", clock=clock) as server:
        one = await server.new_session(title="One")
        two = await server.new_session(title="Two")
        await server.http.patch(f"/api/sessions/{one['id']}", json={"tags": ["birds"]})
        await server.run(one["id"], "which bird?")
        between = clock.now_ms() + 1
        await clock.advance(60)
        await server.run(two["id"], "another bird?")
        while await store.search.index():
            pass

        async def listed(query: str) -> list[str]:
            return [
                item["title"] for item in (await server.http.get(f"/api/sessions?{query}")).json()["items"]
            ]

        async def found(query: str) -> list[str]:
            items = (await server.http.get(f"/api/search?q=bird&{query}")).json()["items"]
            return [hit["title"] for hit in items]

        assert await listed("tag=birds") == ["One"]
        assert await listed(f"since={between}") == ["Two"]
        assert await listed(f"until={between}") == ["One"]
        assert await listed("project=/srv/site") == []
        assert await found("role=user") == ["Two", "One"]
        assert await found("role=assistant") == []
        assert await found("tag=birds") == ["One"]
        assert await found(f"since={between}&role=user") == ["Two"]
        assert (await server.http.get("/api/search?q=bird&role=robot")).status_code == 422
        labels = (await server.http.get("/api/labels")).json()
        assert labels == {"tags": [{"name": "birds", "sessions": 1}], "projects": []}


async def test_several_sessions_are_exported_as_one_archive(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "First answer.", "Second answer.") as server:
        made = [(await server.new_session(title="../Plan"))["id"] for _ in range(2)]
        for session in made:
            await server.run(session, "go")
        answer = await server.http.get(f"/api/export?sessions={','.join(made)}&format=md")
        assert answer.headers["content-type"] == "application/zip"
        with zipfile.ZipFile(io.BytesIO(answer.content)) as file:
            names = file.namelist()
            assert len(set(names)) == 2
            assert not any("/" in name for name in names), "no name leads out of the folder"
            texts = "".join(file.read(name).decode() for name in names)
        assert "First answer." in texts
        assert "Second answer." in texts
        one = await server.http.get(f"/api/export?sessions={made[0]}&format=json")
        with zipfile.ZipFile(io.BytesIO(one.content)) as file:
            assert file.namelist()[0].endswith(".json")
        assert (await server.http.get("/api/export?sessions=,")).status_code == 422
        assert (await server.http.get("/api/export?sessions=ses_1")).status_code == 422
        unknown = "ses_" + "0" * 26
        assert (await server.http.get(f"/api/export?sessions={made[0]},{unknown}")).status_code == 404


async def test_parameters_of_a_session_and_of_one_message(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "One.", "Two.") as server:
        session = await server.new_session()
        place = f"/api/sessions/{session['id']}"
        changed = await server.http.patch(place, json={"parameters": {"temperature": 0.3}})
        assert changed.json()["parameters"] == {"temperature": 0.3}
        body = {"text": "hi", "parameters": {"output_tokens_max": 900}}
        accepted = (await server.http.post(f"{place}/turns", json=body)).json()
        assert accepted["turn"]["parameters"] == {"temperature": 0.3, "output_tokens_max": 900}
        for wrong in ({"temperature": 3}, {"effort": "colossal"}, {"effort": "high"}, {"top_k": 4}):
            for path, sent in ((f"{place}/turns", {"text": "x"}), (place, {})):
                send = server.http.patch if path == place else server.http.post
                refused = await send(path, json={**sent, "parameters": wrong})
                assert refused.status_code in (400, 422), (wrong, refused.text)
        gone = await server.http.patch(place, json={"parameters": None})
        assert "parameters" not in gone.json()
