"""The problem document that an error becomes."""

from __future__ import annotations

from everturn.domain.errors import Invalid, Overloaded, Remedy
from everturn.domain.model_errors import ModelRefused
from everturn.web.access.errors import SignInNeeded
from everturn.web.http.problems import document


def test_a_remedy_is_named_where_there_is_one() -> None:
    assert document(SignInNeeded())["remedy"] == "sign_in"
    assert document(Overloaded("The server is busy."))["remedy"] == "retry"
    assert document(ModelRefused("It refused."))["remedy"] == "choose_model"
    about_key = ModelRefused("The key is wrong.", remedy=Remedy.OPEN_SETTINGS)
    assert document(about_key)["remedy"] == "open_settings"
    assert "remedy" not in document(Invalid("The body is wrong."))


def test_facts_become_members_and_never_replace_the_documents_own() -> None:
    members = document(Invalid("It is wrong.", hint="Mend it.", at="title", status=200))
    assert (members["at"], members["status"], members["code"]) == ("title", 422, "invalid")
