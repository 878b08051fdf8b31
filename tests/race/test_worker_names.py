"""One name, one worker: a second process that takes it is told so, in the same words on both stores."""

import pytest

from everturn.domain.errors import StoreRefused
from everturn.store import Store
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio


async def test_c09_a_worker_that_another_process_has_registered_is_refused(
    store: Store, open_another: OpenAnother
) -> None:
    await store.workers.register("wrk_one")
    other = await open_another()
    with pytest.raises(StoreRefused):
        await other.workers.register("wrk_one")
    await store.workers.unregister("wrk_one")
    await other.workers.register("wrk_one")
