"""What a small model is shown of a message: every statement, in whatever language, and no task."""

# Sentences as people write them, with the letters and stops of their languages.
# ruff: noqa: RUF001

from __future__ import annotations

import pytest

from everturn.models.small_models.statements import find_self_statements, is_grounded


@pytest.mark.parametrize(
    "said",
    [
        "我叫Noor，我住在Berlin",
        "我用 The Rust Book 学习",
        "Я живу в Москве и пользуюсь iPhone.",
        "Mieszkam w Krakowie. Lubię koty.",
        "Jag bor i Malmö. Min dotter heter Elsa.",
        "Adım Can. İzmir'de yaşıyorum.",
        "Locuiesc în Cluj. Fiica mea are nouă ani.",
        "Budapesten lakom. A lányom is itt van.",
        "Bydlím v Brně. Moje dcera je lékařka.",
        "Jeg bor i Aarhus. Min datter hedder Ida.",
        "Asun Turussa. Tyttäreni on lääkäri.",
        "Tôi sống ở Huế. Con gái tôi là bác sĩ.",
        "أسكن في بيروت.",
        "I live in St. Gallen.",
        "I work for Dr. J. Smith and Prof. Meier, e.g. on version 2.5.",
        "Me gusta el café. Estoy casado.",
        "Trabalho em Braga. Gosto de pão.",
    ],
)
def test_a_statement_is_shown_whole(said: str) -> None:
    assert find_self_statements(said) == said


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("I sing. Is that healthy?", "I sing."),
        ("Thanks! Write a haiku about rain.", ""),
        ("My name is Tim. Write a haiku.", "My name is Tim."),
        ("I live in St. Gallen. Write a haiku.", "I live in St. Gallen."),
        ("Ich wohne in St. Gallen. Schreib ein Gedicht!", "Ich wohne in St. Gallen."),
        ("So do I. Write a haiku.", "So do I."),
        ("Escribe un poema. Soy Ana.", "Soy Ana."),
        ("我住在里斯本。那里热吗？", "我住在里斯本。"),
        ("أين أنت؟ أسكن في بيروت.", "أسكن في بيروت."),
        ("Jag bor i Malmö. Hur stor är staden?", "Jag bor i Malmö."),
        ("", ""),
    ],
)
def test_questions_are_not_shown_nor_tasks_in_a_language_whose_words_we_know(said: str, shown: str) -> None:
    assert find_self_statements(said) == shown


@pytest.mark.parametrize(
    ("words", "fact", "is_so"),
    [
        ("我叫Noor，我住在Berlin", "The user is called Noor.", True),
        ("我住在里斯本。", "她喜欢茶。", False),
        ("Я живу в Москве.", "Пользователь живёт в Москве.", True),
    ],
)
def test_a_fact_is_compared_word_by_word_also_where_no_spaces_are(words: str, fact: str, is_so: bool) -> None:
    assert is_grounded(words, fact) is is_so
