"""Messaging platforms: what people write there becomes turns, and answers go back.

Imports domain and tools. ``rendering`` makes an answer messages; ``webhook`` is the platform for programs.
What a platform has to do is in ``domain.platform``; who calls it is in ``delivery``. Nothing starts one yet.
"""

from everturn.gateway.dialects import Dialect
from everturn.gateway.rendering import render

__all__ = ["Dialect", "render"]
