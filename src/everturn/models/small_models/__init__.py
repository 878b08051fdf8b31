"""Help for models too small to use tools, or to read a conversation, on their own.

A large model needs none of this, and neither does a reader of the agent. A model of one or two billion
parameters writes tool calls as text, claims work it has not done, repeats calls, and mistakes questions for
facts about the user. This package works around each of these with prompts, a grammar and word lists:

- ``TextCalls`` wraps a ``Model``: tools are described in the system prompt, calls are read from the text of
  the answer, and a grammar limits which calls are possible. ``ToolBrief`` describes one tool in few words.
- ``find_self_statements`` and ``is_grounded`` prepare a message for fact extraction and check its result.

Used by ``models.local``, ``models.registry`` (for ``calls_in_text``) and ``memory.extraction``. Everything
else in here is private to the package.
"""

from everturn.models.small_models.statements import find_self_statements, is_grounded
from everturn.models.small_models.text_calls import TextCalls, ToolBrief

__all__ = ["TextCalls", "ToolBrief", "find_self_statements", "is_grounded"]
