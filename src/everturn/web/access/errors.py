"""Refusals of unknown clients, and of known ones that lack a right."""

from __future__ import annotations

from everturn.domain.errors import Refused, Remedy


class SignInNeeded(Refused):
    code = "sign_in_needed"
    status = 401
    remedy = Remedy.SIGN_IN

    def __init__(self, message: str = "This server wants you to sign in.") -> None:
        super().__init__(message, hint="POST the password to /api/signin, or send an API token as Bearer.")


class AccessNeeded(Refused):
    """The server has no password, and the client is not known to be its owner."""

    code = "access_needed"
    status = 401
    remedy = Remedy.SIGN_IN

    def __init__(self, message: str = "Without a token only the user who runs this server gets in.") -> None:
        super().__init__(
            message,
            hint="'everturn open' gives an address to open. API clients send the text of access-token in the "
            "data folder as Bearer.",
        )


class WrongPassword(Refused):
    code = "wrong_password"
    status = 401

    def __init__(self) -> None:
        super().__init__("The password is wrong.", hint="'everturn password' sets a new one.")


class OldPasswordWrong(WrongPassword):
    """Not 401: the caller is signed in and stays so."""

    status = 403


class ScopeMissing(Refused):
    code = "scope_missing"
    status = 403

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"This token does not have the scope '{scope}'. Nothing was changed.",
            hint="Use another token, or sign in with the password.",
            scope=scope,
        )


class Throttled(Refused):
    code = "too_many_attempts"
    status = 429

    def __init__(self, seconds: float, *, is_first: bool = True) -> None:
        self.is_first = is_first  # of this wait; later attempts get the same answer
        super().__init__(
            "Too many wrong passwords came from there.",
            hint=f"Wait {seconds:.0f} s, then try again.",
            retry_after_s=max(1, round(seconds)),
        )
