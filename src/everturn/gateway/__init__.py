"""Connects messaging platforms: messages from there become turns, and answers are sent back.

Imports domain, tools and delivery. ``book`` keeps how accounts are set up, ``accounts`` serves them;
``platforms`` finds a platform by its name; ``rendering`` turns an answer into messages. What a platform has
to do is in ``domain.platform``; what is durable about it is in ``delivery``.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.gateway.accounts import GatewayAccounts
    from everturn.gateway.book import AccountBook, BookServices
    from everturn.gateway.dialects import Dialect
    from everturn.gateway.rendering import render
    from everturn.gateway.running_account import RunningServices

__all__ = ["AccountBook", "BookServices", "Dialect", "GatewayAccounts", "RunningServices", "render"]

__getattr__ = lazy_names(__name__)
