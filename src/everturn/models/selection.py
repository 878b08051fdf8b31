"""Which of a provider's models can chat, and which one to start with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from everturn.domain.json_types import Json

# Words in the names of models for other work: embeddings, speech, images, moderation, plain completion.
_OTHER_WORK = re.compile(
    r"embed|minilm|\bbge\b|\bgte\b|\be5\b|\bbert|rerank|whisper|transcri|\btts\b|speech|audio|realtime"
    r"|dall-e|image|diffusion|flux|sora|\bveo\b|\bclip\b|moderation|guard|\bocr\b|babbage|davinci"
    r"|turbo-instruct|search-preview|deep-research|computer-use",
    re.IGNORECASE,
)
_CHAT_TYPES = frozenset({"chat", "llm", "vlm", "model"})


def can_chat(name: str, kind: str = "", outputs: Sequence[str] = (), capabilities: Json = None) -> bool:
    """Whether a model can chat: by the provider's data, or by its name if there is none."""
    if outputs:
        return "text" in outputs
    if isinstance(capabilities, dict) and "completion_chat" in capabilities:
        return bool(capabilities["completion_chat"])
    if isinstance(capabilities, list) and {"completion", "embedding"}.intersection(capabilities):
        return "completion" in capabilities
    if kind:
        return kind in _CHAT_TYPES
    return not _OTHER_WORK.search(name)


def suggest_model(names: Sequence[str], known: str = "") -> str | None:
    """The model to start with: the known one as it is listed, or the only one. None: the user chooses."""
    if known in names:
        return known
    dated = sorted(name for name in names if known and re.fullmatch(rf"{re.escape(known)}-\d{{6,8}}", name))
    if dated:
        return dated[-1]
    return names[0] if len(names) == 1 else None
