"""Names of files and folders that other programs run without being asked to run the project's code.

The class: a program runs or obeys the file because its folder is opened or entered (shells, editors, coding
agents), because an ordinary version control command is given there (hook managers), or because the program is
started in that folder for some other purpose (debuggers, consoles). The list is of names, so it is never
complete; a new tool of that kind belongs here.

Not in the class: code that its owner runs by a command that says so. ``make`` runs the Makefile, ``pytest``
runs conftest.py, ``npm`` runs package.json, and a settings file of a package manager works when something is
built. To write those is what an agent is for. Language servers that build what they open (rust-analyzer runs
build.rs) run such code too; editors have a restricted mode for that. ``.env`` is left out because nearly
always it holds data, and autoenv, which runs it, asks first.
"""

from __future__ import annotations

import re


def _names(*lists: str) -> frozenset[str]:
    return frozenset(" ".join(lists).split())


# Compared without regard to case.
_ENTERED = ".autoenv .autoenv.zsh .envrc .mise .rtx.toml"
# A shell's own files, where a project is a home folder or a home folder links to it.
_SHELLS = (
    ".bash_aliases .bash_login .bash_logout .bash_profile .bashrc .cshrc .kshrc .login .pam_environment "
    ".profile .ssh .tcshrc .xinitrc .xprofile .xsession .xsessionrc .zlogin .zlogout .zprofile .zshenv "
    ".zshrc"
)
_EDITORS = (
    ".devcontainer .devcontainer.json .dir-locals.el .dir-locals-2.el .exrc .externaltoolbuilders "
    ".fleet .gitpod.yml .gvimrc .helix .idea .local.vimrc .lvimrc .neoconf.json .nova .nvim .nvim.lua "
    ".nvimrc .project .run .theia .vim .vimrc .vs .vscode .zed _exrc _gvimrc _vimrc"
)
_AGENTS = (
    ".aider.conf.yml .amazonq .claude .codex .continue .crush.json .cursor .gemini .goose .kilocode "
    ".kiro .mcp.json .opencode .qwen .roo .windsurf crush.json opencode.json opencode.jsonc"
)
_VERSION_CONTROL = (
    ".bzr .gitconfig .githooks .git-hooks .hg .husky .huskyrc .jj .lefthook .lefthook-local "
    ".overcommit.yml .pijul .pre-commit-config.yaml .pre-commit-config.yml .simple-git-hooks.json .sl "
    "_darcs captainhook.json hk.pkl prek.toml simple-git-hooks.json"
)
_CONSOLES = ".gdbinit .ghci .irbrc .lldbinit .ocamlinit .octaverc .pdbrc .pryrc .rprofile"
_STARTUP = _names(_ENTERED, _SHELLS, _EDITORS, _AGENTS, _VERSION_CONTROL, _CONSOLES)
_PATTERNS = re.compile(
    r"""
      .+\.(code-workspace|sublime-project|sublime-workspace)
    | \.?lefthook(-local)?\.(ya?ml|toml|jsonc?)
    | \.?mise(\.[\w-]+)*\.toml
    | \.?(lint-?staged|husky|commitlint|simple-git-hooks)(rc)?(\.config)?\.([cm]?[jt]s|json|ya?ml)
    | \.(lintstaged|commitlint)rc
    """,
    re.VERBOSE,
)

# Some of those programs also look in this folder of the project.
CONFIG = ".config"
_IN_CONFIG = _names("autostart direnv environment.d fish git mise nvim systemd")

# They run on another machine, for the project's owner.
_PIPELINES = (
    ".buildkite .circleci .cirrus.yml .drone.yml .forgejo .gitea .github .gitlab-ci.yml .semaphore "
    ".travis.yml .woodpecker .woodpecker.yml appveyor.yml azure-pipelines.yml bitbucket-pipelines.yml "
    "buildspec.yml cloudbuild.yaml jenkinsfile"
)
# They tell a coding agent what to do.
_INSTRUCTIONS = (
    ".clinerules .cursorrules .roorules .rules .windsurfrules agents.md claude.local.md claude.md gemini.md"
)
_ASKED = _names(".git", _PIPELINES, _INSTRUCTIONS)


def is_startup_file(name: str, *, in_config: bool = False) -> bool:
    """True for an entry of a project's top folder, or of its ``.config``, that other programs run."""
    folded = name.casefold()
    if in_config and folded in _IN_CONFIG:
        return True
    return folded in _STARTUP or _PATTERNS.fullmatch(folded) is not None


def startup_part(parts: tuple[str, ...]) -> str:
    """The first part of a path that file tools ask about; empty if there is none."""
    for above, part in zip(("", *parts), parts, strict=False):
        in_config = above.casefold() == CONFIG
        if part.casefold() in _ASKED or is_startup_file(part, in_config=in_config):
            return part
    return ""
