"""discord.py's HTTP client for any address, and what its errors mean for what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import ClientConnectorError, ClientError
from discord import ConnectionClosed, File, HTTPException, LoginFailure, RateLimited, VoiceClient
from discord.http import HTTPClient, Route

from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.json_types import Json

_NEVER_WAIT_S: Final = 0.01
_WRONG_TOKEN_CLOSE: Final = 4004


# Each account would log two warnings about libraries for voice, which are not needed here.
VoiceClient.warn_nacl = VoiceClient.warn_dave = False


class TokenRefused(PlatformRefused):
    """Discord does not know the token, or it was reset."""


class DiscordHttp(HTTPClient):
    """Repeats a request after a 500. That is safe, because a message carries its nonce."""

    def __init__(self, api_url: str) -> None:
        super().__init__(asyncio.get_running_loop())
        self._api_url = api_url.rstrip("/")
        # The client would wait inside the call, whose outcome is unknown if the process dies meanwhile.
        self.max_ratelimit_timeout = _NEVER_WAIT_S

    async def request(
        self,
        route: Route,
        *,
        files: Sequence[File] | None = None,
        form: Iterable[dict[str, object]] | None = None,
        **kwargs: object,
    ) -> Json:
        route.url = route.url.replace(Route.BASE, self._api_url, 1)
        return await super().request(route, files=files, form=form, **kwargs)


@contextmanager
def translate_errors(*, is_harmless_twice: bool) -> Iterator[None]:
    """Raise PlatformBusy, PlatformRefused or, if the outcome is unknown, ConnectionError."""
    try:
        yield
    except RateLimited as error:
        raise _busy(error.retry_after) from None
    except LoginFailure:
        raise _wrong_token() from None
    except ConnectionClosed as error:
        raise _close_error(error.code) from None
    except HTTPException as error:
        raise _answer_error(error, is_harmless_twice=is_harmless_twice) from None
    except (ClientError, OSError, TimeoutError) as error:
        message = f"Discord cannot be reached, or did not answer ({type(error).__name__})."
        if is_harmless_twice or isinstance(error, ClientConnectorError):
            raise PlatformBusy(message) from None
        raise ConnectionError(message) from None


def _answer_error(error: HTTPException, *, is_harmless_twice: bool) -> Exception:
    """The error that a response with an error status means."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return _wrong_token()
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:  # by the network in front of Discord
        header = error.response.headers.get("Retry-After", "")
        return _busy(float(header) if header.isdecimal() else None)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"Discord answered {error.status}."
        return PlatformBusy(message) if is_harmless_twice else ConnectionError(message)
    reason = error.text.strip().rstrip(".") or HTTPStatus(error.status).phrase
    return PlatformRefused(f"Discord refused it: {reason}.")


def _close_error(code: int | None) -> Exception:
    """What the code means with which Discord closed the socket for good."""
    if code == _WRONG_TOKEN_CLOSE:
        return _wrong_token()
    return PlatformRefused(f"Discord closed the connection for good, with the code {code}.")


def _busy(after_s: float | None) -> PlatformBusy:
    wait = "" if after_s is None else f" {after_s:g} s"
    return PlatformBusy(f"Discord asks to wait{wait}.", after_s=after_s)


def _wrong_token() -> TokenRefused:
    hint = "Reset it in the developer portal (Bot, Reset Token) and store the new one."
    return TokenRefused("Discord does not accept the bot's token.", hint=hint)
