"""HTTP API, event streams, sign-in and the page itself.

Owns everything between a socket and the engine. Imports domain, store, models, tools, memory and engine;
``app.py`` builds it, ``cli`` serves it. Read ``web`` (what a request goes through), ``http/routing`` (one
declaration per endpoint), then ``api/`` (the endpoints, one module per noun).
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.web.access.accounts import Accounts, TokenInfo, open_accounts
    from everturn.web.access.identity import LOCAL_OWNER, Scope
    from everturn.web.build import WebServices, build_web
    from everturn.web.logs import configure_logs
    from everturn.web.server import StartRefused, serve
    from everturn.web.settings import WebSettings
    from everturn.web.web import Web

__all__ = [
    "LOCAL_OWNER",
    "Accounts",
    "Scope",
    "StartRefused",
    "TokenInfo",
    "Web",
    "WebServices",
    "WebSettings",
    "build_web",
    "configure_logs",
    "open_accounts",
    "serve",
]

__getattr__ = lazy_names(__name__)
