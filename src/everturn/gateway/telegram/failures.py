"""What an error of Telegram's client means for the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from aiogram.exceptions import (
    AiogramError,
    TelegramAPIError,
    TelegramBadRequest,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiohttp import ClientConnectorError, ClientError, ClientResponseError

from everturn.domain.errors import PlatformBusy, PlatformRefused


class TokenRefused(PlatformRefused):
    """Telegram does not know the token, or it was revoked."""


@contextmanager
def translate_errors(*, is_harmless_twice: bool) -> Iterator[None]:
    """Raise PlatformBusy, PlatformRefused or, if the outcome is unknown, ConnectionError.

    ``is_harmless_twice``: the request may be repeated although it may have succeeded. Texts of the HTTP
    client can hold addresses, and Telegram's addresses hold the token: they are never passed on.
    """
    try:
        yield
    except TelegramRetryAfter as error:
        message = f"Telegram asks to wait {error.retry_after} s."
        raise PlatformBusy(message, after_s=error.retry_after) from None
    except (TelegramUnauthorizedError, TelegramNotFound) as error:
        # Telegram answers 400 for an unknown chat; 404 means that no bot has this token.
        message = f"Telegram does not accept the bot's token. It says: {_reason(error)}."
        raise TokenRefused(message, hint="Ask @BotFather for a new token and store it.") from None
    except TelegramConflictError:
        message = "Another program receives the messages of this bot."
        raise PlatformBusy(f"{message} Stop it, or give each its own bot.") from None
    except (TelegramBadRequest, TelegramForbiddenError, TelegramEntityTooLarge) as error:
        raise PlatformRefused(f"Telegram refused it: {_reason(error)}.") from None
    except (AiogramError, ClientError, TimeoutError) as error:
        if isinstance(error, ClientResponseError) and error.status == HTTPStatus.NOT_FOUND:
            raise PlatformRefused("Telegram does not have the file any more.") from None
        message = f"Telegram cannot be reached, or did not answer ({_kind(error)})."
        if is_harmless_twice or isinstance(error.__cause__, ClientConnectorError):
            raise PlatformBusy(message) from None
        raise ConnectionError(message) from None


def _reason(error: TelegramAPIError) -> str:
    """The description without the name of the status before it."""
    return error.message.split(": ", 1)[-1].strip().rstrip(".")


def _kind(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, TelegramNetworkError) else None
    return type(cause or error).__name__
