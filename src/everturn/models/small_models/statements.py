"""Finds what users say about themselves, for models too small to tell it from the rest of a message."""

from __future__ import annotations

import re

# A full stop after these does not end a sentence: "St. Gallen", "Dr. Smith", "J. Doe", "e.g. tea".
_SHORTENED = (
    r"(?:(?<=\b[A-HJ-Z])|(?<=\b[A-Z][b-df-hj-np-tv-xz])|(?<=\b[A-Z][b-df-hj-np-tv-xz]{2})"
    r"|(?<=\b(?:Ste|Sra|Rev|Col|Gen))|(?<=\bProf)|(?<=\b[A-Za-z]\.[A-Za-z]))"
)
_WIDE_STOPS = "。\uff01\uff1f؟"  # of Chinese, Japanese and Arabic; no space follows them
_BETWEEN = rf"[^.!?\n{_WIDE_STOPS}]"
# A sentence, or the rest of a line, with its punctuation.
_SENTENCE = re.compile(
    rf"{_BETWEEN}+(?:(?:[.!?](?!\s|$)|{_SHORTENED}\.(?=[ \t])){_BETWEEN}*)*[.!?{_WIDE_STOPS}]*"
)
_QUESTION = ("?", "\uff1f", "؟")

# Words that show that a sentence is about its author, or states a lasting wish.
_OF_SELF = re.compile(
    r"\b(?:I|my|mine|we|our|ich|mich|meine?[nmrs]?|wir|uns|unsere?[nmrs]?|bin|je|j'\w+|moi|mon|ma|mes|nous|notre|nos|"
    r"yo|mis?|soy|estoy|prefiero|quiero|nuestr[ao]s?|me (?:llamo|gustan?|encantan?|chamo)|vivo|tengo|trabajo|"
    r"io|mi[aoe]|sono|ho|abito|lavoro|preferisco|nostr[aoie]|eu|meu|minha|sou|estou|moro|tenho|gosto|prefiro|"
    r"trabalho|noss[ao]s?|ik|mij|mijn|wij|onze?|"
    r"call me|always|never|from now on|immer|nie|niemals|toujours|jamais|siempre|nunca|sempre|mai|altijd)\b",
    re.IGNORECASE,
)
# Words that identify these languages. None is also a word of another language: "are" is Romanian, "my"
# Polish, "van" Hungarian.
_KNOWN = re.compile(
    r"\b(?:the|and|you|your|what|how|this|that|these|its|with|about|please|thanks|thank|which|would|could|should|"
    r"there|because|they|when|where|from|does|has|not|will|just|who|why|into|write|make|tell|show|explain|"
    r"translate|summari[sz]e|create|help|change|fix|"
    r"und|ist|sind|nicht|eine[nmr]?|wir|für|bitte|danke|auch|auf|von|zum|zur|das|dass|aber|oder|habe|kannst|noch|"
    r"warum|schreibe?|erkläre?|übersetze?|"
    r"est|suis|une|dans|avec|pour|vous|nous|merci|cette|être|écris|explique|traduis|comment|"
    r"los|pero|está|estoy|cómo|qué|gracias|hola|muy|también|porque|quiero|escribe|explica|traduce|"
    r"che|della|sono|perché|grazie|anche|questo|questa|scrivi|spiega|traduci|"
    r"não|uma|você|obrigad[oa]|também|minha|são|escrev[ae]|"
    r"het|een|niet|ik|voor|zijn|wat|hoe|maar|ook|naar|mijn|bedankt|schrijf)\b",
    re.IGNORECASE,
)
_SIGNS = "⺀-\U0003ffff"  # scripts without spaces between words: each sign counts as a word
_WORD = re.compile(rf"(?=[^\W\d_])[{_SIGNS}]|[^\W\d_{_SIGNS}]+")
_LATIN = re.compile("[a-zà-ɏ]", re.IGNORECASE)


def find_self_statements(text: str) -> str:
    """The sentences that may say something about the user.

    Questions are left out. In a language of the lists above, so are sentences without a word such as "I" or
    "my"; in any other language all sentences stay.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text)]
    is_known = _is_known(text)
    return " ".join(
        sentence
        for sentence in sentences
        if sentence and not sentence.endswith(_QUESTION) and (not is_known or _OF_SELF.search(sentence))
    )


def _is_known(text: str) -> bool:
    words = _WORD.findall(text)
    latin = sum(1 for word in words if _LATIN.match(word))
    return latin * 2 > len(words) and _KNOWN.search(text) is not None


_PLAIN = frozenset(("the", "a", "user", "is", "are", "was", "has", "their", "her", "his", "and", "with"))
_COMPARED = re.compile(rf"(?=\w)[{_SIGNS}]|[^\W{_SIGNS}]+")


def is_grounded(words: str, fact: str) -> bool:
    """Whether the fact shares a word with the text it was extracted from; invented facts do not.

    Words are compared by their first four letters, Chinese ones sign by sign.
    """
    begins = {word[:4] for word in _COMPARED.findall(words.casefold())}
    own = [word for word in _COMPARED.findall(fact.casefold()) if word not in _PLAIN]
    return any(word[:4] in begins for word in own)
