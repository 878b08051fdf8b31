"""F11: webhooks of notifications are signed, retried and carry an id; addresses of people are checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.delivery.notifications import apprise_child
from everturn.delivery.signatures import read_secret
from everturn.domain.errors import Invalid
from everturn.domain.notifications import NewTarget
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME
from everturn.testing.webhook_service import WebhookService
from tests.notifying import add_browser, grace, long_turn, look_and_send, service_of
from tests.push_service import PushService

pytestmark = pytest.mark.anyio


@pytest.fixture
def push() -> Iterator[PushService]:
    service = PushService()
    with service.serve():
        yield service


async def test_f11_a_webhook_is_signed_and_a_repeat_carries_the_same_id(
    store: Store, clock: FakeClock, data_dir: Path
) -> None:
    receiver = WebhookService(b"", clock)
    with receiver.serve():
        address = f"127.0.0.1:{receiver.port}"
        service = service_of(store, clock, data_dir, [address], page_url="https://agent.example.org")
        target = NewTarget(name="ci", webhook=f"http://{address}/in")
        _, secret = await service.add(ME, target)
        receiver.key = read_secret(secret)
        receiver.break_off()  # it has the message, and gives no answer
        session_id = await long_turn(store, clock)
        await grace(clock)
        await look_and_send(service)
        assert receiver.attempts == 2
        (message,) = receiver.answers.values()
        assert message["type"] == "notification"
        assert message["link"] == f"https://agent.example.org/#/s/{session_id}"
        receiver.be_busy()
        await long_turn(store, clock, "Second")
        await grace(clock)
        await look_and_send(service)
        assert len(receiver.answers) == 1
        await clock.advance(60)
        await look_and_send(service)
        assert len(receiver.answers) == 2


async def test_f11_an_address_that_is_not_public_is_refused_when_it_is_added_and_when_it_is_sent_to(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    closed, opened = service_of(store, clock, data_dir), service_of(store, clock, data_dir, [push.private])
    with pytest.raises(Invalid, match="not a public address"):
        await closed.add(ME, NewTarget(name="inside", webhook=f"http://{push.private}/in"))
    with pytest.raises(Invalid, match="not https"):
        await add_browser(closed, push)
    assert await closed.devices(ME) == []
    # A name can lead elsewhere later: what was allowed once is checked again at each connection.
    await add_browser(opened, push)
    await long_turn(store, clock)
    await grace(clock)
    await look_and_send(closed)
    assert push.attempts == []
    (device,) = await closed.devices(ME)
    assert "is not a public address" in device.error


async def test_f11_a_redirect_is_not_followed(
    store: Store, clock: FakeClock, data_dir: Path, push: PushService
) -> None:
    service = service_of(store, clock, data_dir, [push.private])
    await add_browser(service, push)
    push.statuses = [302]
    await long_turn(store, clock)
    await grace(clock)
    await look_and_send(service)
    assert len(push.attempts) == 1
    (device,) = await service.devices(ME)
    assert (device.error, device.ended_at) == ("The push service answered 302.", None)


async def test_f11_apprise_reaches_only_what_is_public_or_allowed(push: PushService) -> None:
    pytest.importorskip("apprise", reason="it is an extra")
    order = apprise_child.Order(f"ntfy://{push.private}/backups", "Test", "Notifications arrive here.")
    outcome = await apprise_child.run(order)
    assert outcome.is_refused
    assert "is not a public address" in outcome.problem
    assert push.attempts == []
    allowed = apprise_child.Order(order.url, order.title, order.text, (push.private,))
    push.statuses = [200]
    assert await apprise_child.run(allowed) == apprise_child.SendOutcome()
    assert len(push.attempts) == 1
    unknown = apprise_child.Order("nowhere://x", "", "", is_check=True)
    assert (await apprise_child.run(unknown)).is_refused
