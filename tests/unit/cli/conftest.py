import pytest


@pytest.fixture
def store_kind() -> str:
    """The command line's own parts are tested over one store."""
    return "sqlite"
