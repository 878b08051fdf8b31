"""A profile as a file: nothing is lost on the way, nothing but a profile is taken, and what it allows is said."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from everturn.domain.errors import Invalid
from everturn.tools import TOOL_NAMES, Profile, parse_profiles
from everturn.tools.profile_file import Grant, describe_grant, list_grants, read_profile, write_profile

FULL = Profile(
    name="writer",
    prompt='You write.\nSay "yes" \\ and \t\x1b """quoted""".\n',
    model="openai:some-model",
    effort=None,
    temperature=0.5,
    output_tokens_max=900,
    tools=("read_file", "web_fetch"),
    skills=(),
    mcp=("shelf",),
    memory=False,
    budget_usd=1.25,
    budget_tokens=5_000,
    network=True,
    hosts=("example.com",),
    sandbox=False,
    memory_mib=512,
)


def test_a_profile_comes_back_as_it_was() -> None:
    assert read_profile(write_profile(FULL)) == FULL
    assert read_profile(write_profile(FULL), "other").name == "other"


@given(st.text(min_size=1, max_size=200).filter(lambda text: bool(text.strip())))
def test_any_prompt_comes_back_as_it_was(prompt: str) -> None:
    text = write_profile(Profile(name="one", prompt=prompt))
    assert tomllib.loads(text)["profiles"]["one"]["prompt"] == prompt


def test_the_file_can_be_pasted_into_config_toml() -> None:
    profile = Profile(name="mine", prompt="You help.\nA lot.", tools=("read_file",), temperature=0.0)
    assert parse_profiles(write_profile(profile), "config.toml", TOOL_NAMES).get("mine") == profile


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a profile"),
        ("not toml at all", "cannot be read"),
        ('[profiles.a]\nprompt = "x"\n[profiles.b]\nprompt = "x"\n', "not a profile"),
        ('[profiles.a]\nprompt = "x"\n[mcp.evil]\ncommand = "sh"\n', "not a profile"),
        ('[profiles.a]\nprompt = "x"\nunknown = 1\n', "unknown"),
        ('[profiles.a]\nmodel = "x"\n', "no prompt"),
        ('[profiles.a]\nprompt = "x"\nname = "default"\n', "not a profile"),
        ('[profiles."../a"]\nprompt = "x"\n', "cannot be a profile's name"),
        ('[profiles.a]\nprompt = "x"\nhost_network = true\n', "config.toml only"),
        ('[profiles.a]\nprompt = "x"\nhosts = ["*"]\n', "A setting is wrong"),
        ("a = " + "[" * 100_000, "cannot be read"),
        ('[profiles.a]\nprompt = "' + "x" * 300_000 + '"\n', "characters"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read_profile(text)


def test_what_a_profile_allows_is_said() -> None:
    whats = {grant.what: grant.names for grant in list_grants(FULL)}
    assert whats == {
        "no_sandbox": (),
        "network": (),
        "hosts": ("example.com",),
        "tools": ("read_file", "web_fetch"),
        "mcp": ("shelf",),
        "model": ("openai:some-model",),
    }
    assert [grant.what for grant in list_grants(Profile(name="all"))] == ["all_tools", "all_skills"]
    assert list_grants(Profile(name="none", tools=(), skills=())) == []
    assert describe_grant(Grant("hosts", ("a.com", "b.com"))) == (
        "reaches these hosts without asking: a.com, b.com"
    )


def test_only_what_is_new_is_said_of_a_changed_profile(tmp_path: Path) -> None:
    before = Profile(name="a", tools=("read_file",), hosts=("a.com",), network=True, processes=64)
    after = Profile(name="a", tools=None, hosts=("a.com", "b.com"), network=True, processes=512)
    found = list_grants(after, before)
    assert [grant.what for grant in found] == ["hosts", "all_tools", "more_resources"]
    assert found[0].names == ("b.com",)
    assert list_grants(before, after) == []


def test_that_a_changed_profile_spends_more_remembers_or_has_another_model_is_said() -> None:
    own = Profile(name="a", model="local:a", memory=False, budget_usd=1.0, budget_tokens=1000)
    unbound = Profile(name="a")
    assert [grant.what for grant in list_grants(unbound, own)] == ["default_model", "memory", "more_budget"]
    assert list_grants(own, own) == []
    assert [grant.what for grant in list_grants(own, unbound)] == ["model"]
    assert [grant.what for grant in list_grants(replace(own, budget_tokens=1001), own)] == ["more_budget"]
