import pytest

from everturn.domain.model_errors import ModelRefused, ModelSilent, RateLimited
from everturn.engine.model_call import ask_model, backoff_s, plain_request
from everturn.engine.settings import EngineSettings
from everturn.testing import Cut, FakeClock, Say, ScriptedModel

SETTINGS = EngineSettings(retry_first_s=1.0, retry_longest_s=10.0, model_attempts_max=2)
REQUEST = plain_request("s", "t", None)


def test_the_wait_doubles_up_to_its_bound_and_differs_by_subject():
    waits = [backoff_s(SETTINGS, "t", n, RateLimited("x")) for n in range(1, 8)]
    for expected, wait in zip([1, 2, 4, 8, 10, 10, 10], waits, strict=True):
        assert expected <= wait <= expected * 1.25
    assert len({backoff_s(SETTINGS, f"t{n}", 1, RateLimited("x")) for n in range(20)}) > 10


def test_the_providers_word_wins_and_too_long_is_given_up():
    assert backoff_s(SETTINGS, "t", 5, RateLimited("x", retry_after_s=3.0)) == 3.0
    assert backoff_s(SETTINGS, "t", 1, RateLimited("x", retry_after_s=1e5)) is None
    assert backoff_s(SETTINGS, "t", 1, ModelRefused("x")) is None


@pytest.mark.anyio
async def test_a_question_is_retried_and_then_fails():
    clock = FakeClock()
    model = ScriptedModel(RateLimited("x", retry_after_s=0.0), [Say(" yes ")])
    text, usage = await ask_model(model, REQUEST, clock=clock, settings=SETTINGS, subject="s")
    assert text == "yes"
    assert usage.input_tokens == 10
    for script, error in (([Cut()], Exception), ([Say(" ")], ModelSilent)):
        silent = ScriptedModel(then=script)
        fast = EngineSettings(model_attempts_max=1)
        with pytest.raises(error):
            await ask_model(silent, REQUEST, clock=clock, settings=fast, subject="s")
