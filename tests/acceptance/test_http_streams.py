"""Streams over real HTTP: resumption, the shared stream, heartbeats, ends."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.events import TextDelta, encode
from everturn.domain.job_states import JobState
from everturn.domain.jobs import JobEnding
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, new_job
from everturn.testing.models import Chunks, Say, Wait
from everturn.testing.web_server import PATIENCE_S, Running, StreamFrame, run_web

pytestmark = pytest.mark.anyio


async def test_a_reader_resumes_exactly_after_its_last_event(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, [Say("abcdefghij", size=1)]) as server:
        session_id = (await server.new_session())["id"]
        everything = await server.run(session_id)
        path = f"/api/sessions/{session_id}/events"
        for cut in range(len(everything)):
            headers = {"Last-Event-ID": everything[cut].id}
            rest = await server.read_until(f"{path}?follow=0&after=0", "stream.end", headers=headers)
            assert rest[:-1] == everything[cut + 1 :]
            assert rest[-1].json == {"reason": "replayed"}
        assert await server.read_until(f"{path}?follow=0", "stream.end") == [*everything, rest[-1]]


async def test_the_payload_goes_out_byte_for_byte_as_stored(store: Store, tmp_path: Path) -> None:
    words = 'a "quote", a \\ and a line\nbreak, é, \u2028, 漢'
    async with run_web(store, tmp_path, words) as server:
        session_id = (await server.new_session())["id"]
        frames = await server.run(session_id)
        (delta,) = [frame for frame in frames if frame.event == "text.delta"]
        stored = encode(TextDelta(step=1, text=words)).decode()
        assert delta.data.endswith(f'"event":{stored}}}')
        assert delta.json["event"]["text"] == words
        assert delta.json["position"] == int(delta.id)


async def test_a_cursor_from_the_future_gets_a_snapshot_instead_of_silence(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, "Hi.", "Again.") as server:
        session_id = (await server.new_session())["id"]
        seen = await server.run(session_id)
        path = f"/api/sessions/{session_id}/events"
        with anyio.fail_after(PATIENCE_S):
            async with server.frames(path, headers={"Last-Event-ID": "999999"}) as frames:
                first = await anext(frames)
                assert (first.event, first.id) == ("snapshot", seen[-1].id)
                await server.send(session_id)
                assert (await anext(frames)).event == "turn.accepted"


async def test_the_shared_stream_says_so_too(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Hi.") as server:
        session_id = (await server.new_session())["id"]
        seen = await server.run(session_id)
        path = f"/api/events?sessions={session_id}&after={session_id}:999999"
        frames = await server.read_until(path, "sessions.snapshot")
        assert (frames[0].event, frames[0].id) == ("snapshot", f"{session_id}:{seen[-1].id}")


async def test_last_event_ids_that_make_no_sense_are_refused(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path) as server:
        session_id = (await server.new_session())["id"]
        for wrong in ("x", "-1", "1.5", "9" * 30, "٣"):
            answer = await server.http.get(
                f"/api/sessions/{session_id}/events",
                headers={"Last-Event-ID": wrong.encode()},  # type: ignore[arg-type]  # bytes, to send what is no text
            )
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def _kinds(server: Running, path: str, until: str) -> list[str]:
    return [frame.event for frame in await server.read_until(path, until)]


async def news_of(frames: AsyncIterator[StreamFrame], session_id: str, kind: str) -> dict:
    """The next news of this kind about this session; others may come between."""
    async for frame in frames:
        if frame.event == kind and frame.json["session_id"] == session_id:
            return dict(frame.json)
    raise AssertionError("the stream ended")


async def test_the_shared_stream_tells_about_the_list_and_the_wanted_sessions(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path, "One.", "Two.") as server:
        first = (await server.new_session(title="A"))["id"]
        second = (await server.new_session(title="B"))["id"]
        before = await server.run(first)
        seen: list[StreamFrame] = []
        with anyio.fail_after(PATIENCE_S):
            async with server.frames(f"/api/events?sessions={first},{second}") as frames:
                snapshot = await anext(frames)
                assert snapshot.event == "sessions.snapshot"
                assert {s["title"] for s in snapshot.json["sessions"]} == {"A", "B"}
                assert snapshot.json["counts"]["sessions"] == 2
                await server.send(second, "go")
                async for frame in frames:
                    seen.append(frame)
                    if frame.event == "session.done":
                        break
                await server.http.patch(f"/api/sessions/{first}", json={"title": "Renamed"})
                renamed = await news_of(frames, first, "session.renamed")
                assert renamed["session"]["title"] == "Renamed"
                third = (await server.new_session(title="C"))["id"]
                await news_of(frames, third, "session.created")
                await server.http.delete(f"/api/sessions/{third}")
                await news_of(frames, third, "session.deleted")
                await server.http.post(f"/api/sessions/{third}/restore")
                back = await news_of(frames, third, "session.created")
                assert back["session"]["title"] == "C"
        journal = [frame for frame in seen if frame.id]
        assert [frame.json["session_id"] for frame in journal] == [second] * len(journal)
        assert "session.busy" in [frame.event for frame in seen]
        assert journal[0].id == f"{first}:{len(before)},{second}:1"


async def test_the_shared_stream_tells_of_jobs_of_sessions_that_are_not_followed(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path) as server:
        session_id = (await server.new_session())["id"]
        job = new_job()
        with anyio.fail_after(PATIENCE_S):
            async with server.frames("/api/events") as frames:
                assert (await anext(frames)).event == "sessions.snapshot"
                for change in (
                    store.jobs.add(ME, session_id, job, running_max=1),
                    store.jobs.ask_to_stop(ME, job.id),
                    store.jobs.end(job.id, JobEnding(JobState.STOPPED)),
                ):
                    await change
                    while (await anext(frames)).event != "jobs.changed":
                        pass


async def test_the_shared_stream_resumes_every_session_from_one_id(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "One.", "Two.") as server:
        ids = [(await server.new_session())["id"] for _ in range(2)]
        runs = [await server.run(one) for one in ids]
        sessions = ",".join(ids)
        cursor = f"{ids[0]}:2,{ids[1]}:{len(runs[1])}"
        wanted = len(runs[0]) - 2
        got: list[StreamFrame] = []
        with anyio.fail_after(PATIENCE_S):
            async with server.frames(
                f"/api/events?sessions={sessions}", headers={"Last-Event-ID": cursor}
            ) as frames:
                async for frame in frames:
                    if frame.event not in ("sessions.snapshot",):
                        got.append(frame)
                    if len(got) == wanted:
                        break
        assert [frame.json["position"] for frame in got] == list(range(3, len(runs[0]) + 1))
        assert got[-1].id == f"{ids[0]}:{len(runs[0])},{ids[1]}:{len(runs[1])}"


async def test_a_deleted_session_among_the_wanted_ones_does_not_break_the_stream(
    store: Store, tmp_path: Path
) -> None:
    async with run_web(store, tmp_path) as server:
        session_id = (await server.new_session())["id"]
        missing = session_id[:-1] + ("0" if session_id[-1] != "0" else "1")
        frames = await server.read_until(f"/api/events?sessions={missing},{session_id}", "sessions.snapshot")
        assert (frames[0].event, frames[0].json["session_id"]) == ("session.deleted", missing)


async def test_heartbeats_keep_an_idle_stream_alive(store: Store, tmp_path: Path, clock: FakeClock) -> None:
    async with run_web(store, tmp_path, clock=clock) as server:
        session_id = (await server.new_session())["id"]
        with anyio.fail_after(PATIENCE_S):
            async with server.http.stream("GET", f"/api/sessions/{session_id}/events") as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                assert await anext(lines) == ""
                await clock.advance(16)
                assert await anext(lines) == ":"


async def test_every_reader_gets_a_last_event_when_the_server_stops(store: Store, tmp_path: Path) -> None:
    never = anyio.Event()
    ends: list[str] = []
    async with run_web(store, tmp_path, [Say("Half"), Wait(never)]) as server:
        session_id = (await server.new_session())["id"]
        await server.send(session_id)
        await server.read_until(f"/api/sessions/{session_id}/events", "text.delta")

        async def read(path: str) -> None:
            async with server.http.stream("GET", path) as answer:
                text = "".join([part async for part in answer.aiter_text()])
                ends.append(text[text.rindex("retry:") :])

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(read, f"/api/sessions/{session_id}/events")
                    group.start_soon(read, f"/api/events?sessions={session_id}")
                while len(server.web.streams) < 20:
                    await anyio.lowlevel.checkpoint()
                server.web.stop()
    assert len(ends) == 20
    assert set(ends) == {'retry: 150\nevent: stream.end\ndata: {"reason":"shutdown"}\n\n'}


async def test_a_client_that_never_reads_is_cut_off_and_no_other_client_waits(
    store: Store, tmp_path: Path, clock: FakeClock
) -> None:
    async with run_web(store, tmp_path, [Chunks("x" * 20_000, 100)], clock=clock) as server:
        session_id = (await server.new_session())["id"]
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.connect(("127.0.0.1", server.port))
            head = f"Host: 127.0.0.1:{server.port}\r\n\r\n"
            stuck.sendall(f"GET /api/sessions/{session_id}/events HTTP/1.1\r\n{head}".encode())
            while not len(server.web.streams):
                await anyio.lowlevel.checkpoint()
            frames = await server.run(session_id)
            assert frames[-1].event == "turn.completed"
            with anyio.fail_after(PATIENCE_S):
                while not server.web.streams.waiting:
                    await anyio.lowlevel.checkpoint()
            await clock.advance(40)
            assert server.web.streams.cut_off == 1
            assert len(server.web.streams) == 0


async def test_too_many_streams_are_refused_with_429(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, settings={"streams_per_owner_max": 2}) as server:
        session_id = (await server.new_session())["id"]
        path = f"/api/sessions/{session_id}/events"
        async with server.frames(path), server.frames(path):
            refused = await server.http.get(path)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
