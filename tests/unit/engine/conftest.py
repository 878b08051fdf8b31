import pytest


@pytest.fixture
def store_kind() -> str:
    """The engine's own parts are tested over one store; the contracts run over both."""
    return "sqlite"
