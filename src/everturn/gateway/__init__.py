"""Messaging platforms: what people write there becomes turns, and answers go back.

Imports domain, store, engine and delivery. Start with ``rendering``: how an answer becomes messages.
"""

from everturn.gateway.dialects import Dialect
from everturn.gateway.rendering import render

__all__ = ["Dialect", "render"]
