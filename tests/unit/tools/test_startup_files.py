from __future__ import annotations

import pytest

from everturn.tools.policy.startup_files import is_startup_file, startup_part

RUN = """.envrc .vimrc .nvimrc .exrc .nvim.lua _vimrc .dir-locals.el .helix .run .idea .vscode my.code-workspace
    x.sublime-project lefthook.yml .lefthook.yml lefthook-local.yml .lefthook-local.toml lefthook.jsonc .lefthook .husky
    .huskyrc.js .pre-commit-config.yaml .lintstagedrc lint-staged.config.mjs commitlint.config.js .overcommit.yml
    mise.toml .mise.toml mise.local.toml .mise.dev.local.toml .bashrc .zshenv .ssh .gdbinit .Rprofile .mcp.json .claude
    .VSCODE Lefthook.yml .hg .jj"""
NOT_RUN = """Makefile conftest.py package.json pyproject.toml .env .npmrc .gitignore .gitattributes .gitmodules .editorconfig
    .prettierrc tsconfig.json promise.toml code-workspace lefthook.md setup.py .config .python-version"""


@pytest.mark.parametrize("name", RUN.split())
def test_what_other_programs_run_by_themselves(name: str) -> None:
    assert is_startup_file(name)
    assert startup_part(("sub", name, "x")) == name


@pytest.mark.parametrize("name", NOT_RUN.split())
def test_what_is_run_only_by_a_command_that_says_so(name: str) -> None:
    assert not is_startup_file(name)
    assert startup_part((name,)) == ""


def test_the_config_folder_holds_some_of_them() -> None:
    assert is_startup_file("lefthook.yml", in_config=True)
    assert is_startup_file("fish", in_config=True)
    assert not is_startup_file("fish")
    assert not is_startup_file("dotnet-tools.json", in_config=True)
    assert startup_part((".config", "mise", "config.toml")) == "mise"
    assert startup_part(("src", "mise", "config.toml")) == ""


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", ".github", ".git", "Jenkinsfile", ".cursorrules"])
def test_file_tools_also_ask_about_what_runs_elsewhere_or_instructs_an_agent(name: str) -> None:
    assert startup_part(("sub", name)) == name
    assert not is_startup_file(name)
