"""Accounts on messaging platforms, and the updates that are posted for them."""

from __future__ import annotations

from everturn.domain import errors as e
from everturn.domain.gateway import Gateway
from everturn.web.http.problems import BodyTooLarge, BodyTooSlow
from everturn.web.http.routing import JSON, Answer, AnyEndpoint, ApiCall, Endpoint, Nothing, collect

_HOOK_BYTES_MAX = 1_000_000  # before the signature is checked: strangers get no more of our memory
_HOOK_TIMEOUT_S = 10.0


class GatewayApi:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="POST",
                path="/hooks/{account}",
                run=self.take_hook,
                summary="Post an update for an account. Its signature is checked; a repeat changes nothing.",
                tag="gateway",
                scope=None,
                takes=(JSON,),
                body_bytes_max=_HOOK_BYTES_MAX,
                status=202,
                errors=(e.HookDenied, e.Invalid, BodyTooLarge, BodyTooSlow),
            ),
        ]

    async def take_hook(self, call: ApiCall[Nothing, Nothing]) -> Answer:
        """Answers once the update is stored: the sender may forget it then."""
        length = call.headers.get("content-length")
        body = await collect(call.receive, _HOOK_BYTES_MAX, _HOOK_TIMEOUT_S, length)
        await self._gateway.take_hook(call.path["account"], call.headers, body)
        return Answer(None)
