"""What a mail says: sender, thread, words and files."""

from __future__ import annotations

from typing import Any

import pytest
from imap_tools import MailMessage

from everturn.domain.delivery import Update
from everturn.gateway.mail.incoming import FILES_MAX, TEXT_CHARS_MAX, Ignored, read_mail, sender_of
from everturn.gateway.mail.quotes import cut_html_quote, cut_quote, cut_signature
from everturn.gateway.mail.settings import MailSettings
from tests.mail_service import ADDRESS, AUTHSERV, PERSON, mail

SETTINGS = MailSettings(address=ADDRESS, imap_host="h", smtp_host="h", authserv=AUTHSERV)


def read(text: str = "", **more: Any) -> Update:
    return read_mail("post", PERSON, MailMessage.from_bytes(mail(text, **more)), "1")


# --- who -----------------------------------------------------------------------------------------------


def test_the_sender_is_the_one_address_in_lower_case() -> None:
    found = sender_of(MailMessage.from_bytes(mail("hi", sender="Ada Lovelace <Ada@Example.org>")), SETTINGS)
    assert found == PERSON


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto_Submitted": "auto-replied"},
        {"Auto_Submitted": "auto-generated; owner-email=a@b"},
        {"Precedence": "bulk"},
        {"Precedence": "list"},
        {"List_Id": "<team.example.org>"},
        {"List_Unsubscribe": "<mailto:x@example.org>"},
        {"Return_Path": "<>"},
        {"X_Autoreply": "yes"},
        {"sender": ADDRESS},
        {"sender": f"Me <{ADDRESS.upper()}>"},
        {"sender": "MAILER-DAEMON@example.org"},
        {"sender": "no-reply@example.org"},
    ],
)
def test_programs_and_lists_are_never_answered(headers: dict[str, Any]) -> None:
    found = sender_of(MailMessage.from_bytes(mail("hi", **headers)), SETTINGS)
    assert isinstance(found, Ignored)
    assert found.is_automatic


def test_a_report_about_delivery_is_never_answered() -> None:
    raw = mail("hi").replace(b"Content-Type: text/plain", b'Content-Type: multipart/report; boundary="x"')
    found = sender_of(MailMessage.from_bytes(raw), SETTINGS)
    assert isinstance(found, Ignored)
    assert found.is_automatic


def test_a_person_who_says_so_is_no_program() -> None:
    assert sender_of(MailMessage.from_bytes(mail("hi", Auto_Submitted="no")), SETTINGS) == PERSON


# --- where ---------------------------------------------------------------------------------------------


def test_a_thread_is_a_chat_named_by_its_first_mail_and_its_sender() -> None:
    first = read("hi", message_id="<a@example.org>")
    answered = read("more", references="<a@example.org> <prt_1@example.org>")
    without_references = read("more", In_Reply_To="<a@example.org>")
    assert first.place == answered.place == without_references.place
    assert (first.place.chat, first.place.thread) == (PERSON, "a@example.org")
    assert read("hi").place != first.place


def test_a_sender_cannot_enter_the_thread_of_another() -> None:
    raw = MailMessage.from_bytes(mail("hi", references="<a@example.org>"))
    assert read_mail("post", "eve@example.org", raw, "1").place != read_mail("post", PERSON, raw, "1").place
    assert read_mail("post", "eve@example.org", raw, "1").id != read_mail("post", PERSON, raw, "1").id


@pytest.mark.parametrize("name", ["x" * 300 + "@example.org", "\u00e4@example.org"])
def test_a_name_of_a_thread_that_cannot_be_used_is_hashed(name: str) -> None:
    raw = f"From: ada@example.org\r\nReferences: <{name}>\r\n\r\nhi".encode()
    place = read_mail("post", PERSON, MailMessage.from_bytes(raw), "1").place
    assert len(place.thread) == 64
    assert "@" not in place.thread


def test_a_mail_without_an_id_is_recognised_all_the_same() -> None:
    raw = b"From: ada@example.org\r\nDate: Mon, 16 Nov 2026 09:00:00 +0000\r\n\r\nhi"
    one, two = (read_mail("post", PERSON, MailMessage.from_bytes(raw), "1") for _ in range(2))
    assert one.id == two.id
    assert one.place.thread


def test_a_date_that_is_none_is_left_out() -> None:
    raw = b"From: ada@example.org\r\nDate: yesterday\r\n\r\nhi"
    assert read_mail("post", PERSON, MailMessage.from_bytes(raw), "1").sent_at is None
    assert read("hi").sent_at == 1_794_819_600_000


# --- what ----------------------------------------------------------------------------------------------


def test_the_subject_belongs_to_the_first_mail_of_a_thread() -> None:
    assert read("for two, at eight", subject="A table").text == "A table\n\nfor two, at eight"
    assert read("", subject="What is new?").text == "What is new?"
    assert read("at nine, please", subject="Re: A table", references="<a@b.c>").text == "at nine, please"
    assert read("K7M4PQ2X", subject="pairing").text == "K7M4PQ2X"
    assert read("/switch 2", subject="hi").text == "/switch 2"


def test_html_is_read_as_text_without_the_answered_mail() -> None:
    page = (
        "<html><style>p{}</style><body><p>Yes, <b>please</b>.</p>"
        '<div class="gmail_quote"><p>On Monday Everturn wrote:</p><blockquote>Shall I?</blockquote></div></body>'
    )
    assert read(html=page, references="<a@b.c>").text == "Yes, please."
    assert "Shall I?" in read(html=page).text


def test_a_text_is_preferred_to_its_html() -> None:
    assert read("plain words", html="<p>other words</p>").text == "plain words"


def test_a_long_mail_is_cut_and_says_so() -> None:
    text = read("wörd " * TEXT_CHARS_MAX).text
    assert len(text) < TEXT_CHARS_MAX + 100
    assert "was not read" in text


def test_bytes_that_are_no_text_are_left_out() -> None:
    raw = b"From: a@b.c\r\nContent-Type: text/plain; charset=klingon\r\n\r\na\0b \xff c"
    text = read_mail("post", PERSON, MailMessage.from_bytes(raw), "1").text
    assert "\0" not in text
    assert text.encode()


def test_only_so_many_files_are_taken() -> None:
    files = tuple((f"{number}.txt", b"x") for number in range(FILES_MAX + 5))
    update = read("hi", files=files)
    assert len(update.files) == FILES_MAX
    assert "5 more" in update.text


REPLY = "Yes, do it."


@pytest.mark.parametrize(
    "text",
    [
        "Yes, do it.\n\nOn Mon, 16 Nov 2026 at 09:00, Everturn <agent@example.org> wrote:\n> Shall I?\n> Say so.\n",
        "Yes, do it.\r\n\r\nOn Mon, 16 Nov 2026 at 09:00, Everturn\r\n<agent@example.org> wrote:\r\n\r\n> Shall I?\r\n>\r\n> x\r\n",
        "Yes, do it.\n\nAm 16.11.2026 um 09:00 schrieb Everturn:\n> Shall I?\n",
        "Le lun. 16 nov. 2026 à 09:00, Everturn a écrit :\n> Shall I?\n\nYes, do it.",
        "> Shall I?\n> Say so.\n\nYes, do it.\n",
        "Yes, do it.\n\n-----Original Message-----\nFrom: Everturn\nShall I?\n",
        "Yes, do it.\n\n________________________________\nFrom: Everturn\nSent: Monday\nTo: Ada\n\nShall I?\n",
        "Yes, do it.\n\nVon: Everturn <agent@example.org>\nGesendet: Montag\nAn: Ada\n\nShall I?\n",
        "Yes, do it.\n-- \nAda Lovelace\nCountess\n\nOn Monday, Everturn wrote:\n> Shall I?\n",
        "Yes, do it.\n\nSent from my iPhone\n\nOn Monday, Everturn wrote:\n\n> Shall I?\n",
    ],
    ids=range(10),
)
def test_the_answered_mail_and_the_signature_are_removed(text: str) -> None:
    assert cut_signature(cut_quote(text)).strip() == REPLY


@pytest.mark.parametrize(
    "text",
    [
        "> Which day?\nMonday.\n> Which hour?\nNine.",
        "He wrote:\nnothing at all.",
        "a > b\n- one\n-- two",
        "From: Rome\nTo: Paris\nby train",
        "",
        "> only a quotation",
    ],
)
def test_words_of_the_person_stay(text: str) -> None:
    kept = cut_signature(cut_quote(text)).strip()
    assert kept == (text if not text.startswith("> only") else "")


def test_a_page_that_begins_with_the_answered_mail_stays() -> None:
    page = '<div class="gmail_quote">Shall I?</div><p>Yes.</p>'
    assert cut_html_quote(page) == page


def test_hostile_text_is_cut_in_linear_time() -> None:
    for text in (
        ">" * 200_000,
        "\n" * 200_000,
        "wrote " * 50_000 + "\n> x",
        "From: x\n" * 30_000,
        "<div " * 50_000,
    ):
        cut_signature(cut_quote(text))
        cut_html_quote(text)


# --- whose words ---------------------------------------------------------------------------------------

GMAIL = (
    "Please pay.\n\n---------- Forwarded message ---------\nFrom: Eve <eve@example.com>\nSubject: pay\n\nNow!"
)
OUTLOOK = "fyi\n\nFrom: Eve <eve@example.com>\nSent: Monday\nTo: Ada\nSubject: pay\n\nNow!"
APPLE = "Begin forwarded message:\n\n> From: Eve <eve@example.com>\n> Pay now!"
THUNDERBIRD = (
    "-------- Weitergeleitete Nachricht --------\nBetreff: Zahlung\nVon: Eve <eve@example.com>\n\nJetzt!"
)


@pytest.mark.parametrize("text", [GMAIL, OUTLOOK, THUNDERBIRD])
def test_f05_a_forwarded_mail_is_the_words_of_its_author(text: str) -> None:
    assert read(text).forwarded_from == "Eve <eve@example.com>"


def test_a_forwarded_mail_that_looks_like_a_reply_is_read_whole() -> None:
    assert "Now!" in read(OUTLOOK, subject="FW: pay", references="<1@example.com>").text


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (APPLE, {}),
        ("see below", {"subject": "Fwd: pay"}),
        ("see below", {"subject": "WG: Zahlung"}),
        ("> Pay now!", {}),
        # A forward can name the mail that it passes on as if it answered it.
        (GMAIL.replace("From: ", ""), {"references": "<1@example.com>"}),
    ],
)
def test_f05_in_doubt_a_mail_counts_as_forwarded(text: str, more: dict[str, Any]) -> None:
    assert read(text, **more).forwarded_from == "another person"


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("hello", {}),
        ("Forward this message to Ben, please.", {"subject": "Re: Fwd: pay"}),
        ("yes\n\nOn Monday Agent wrote:\n> Shall I?", {"In_Reply_To": "<1@example.org>"}),
        ("> Shall I?\nyes\n> And that?\nno", {"In_Reply_To": "<1@example.org>"}),
    ],
)
def test_the_senders_own_words_are_their_own(text: str, more: dict[str, Any]) -> None:
    assert read(text, **more).forwarded_from == ""
