"""The group of all commands, each loaded when it is called."""

from __future__ import annotations

import importlib
import sys

import click

from everturn import __version__

# name -> (module, what `everturn --help` says)
COMMANDS = {
    "serve": ("serve", "Run the server and the page."),
    "service": ("service", "Run the server as a service (systemd, launchd)."),
    "open": ("open", "Open the page in a browser."),
    "run": ("run", "Ask one question."),
    "chat": ("chat", "Chat with a running server."),
    "sessions": ("sessions", "List, rename, archive and delete sessions."),
    "files": ("files", "Read, compare, download and restore the files of a session."),
    "jobs": ("jobs", "List and stop commands that run in the background."),
    "keys": ("keys", "List, save and remove the keys of model providers."),
    "skills": ("skills", "List, show, trust, import and remove skills."),
    "profiles": ("profiles", "List, show, share and remove profiles."),
    "models": ("models", "List, test and download models."),
    "gateway": ("gateway", "Set up and check accounts on messaging platforms."),
    "mcp": ("mcp", "Set up MCP servers: tools from other programs, local or over HTTP."),
    "schedules": ("schedules", "List, make and run schedules."),
    "budgets": ("budgets", "List, set and remove budgets."),
    "memory": ("memory", "View, edit and delete memory notes."),
    "knowledge": ("knowledge", "List, make and search folders and uploads that sessions can search."),
    "export": ("export", "Export a session."),
    "import": ("session_import", "Import sessions."),
    "backup": ("backup", "Back up your data; the server can keep running."),
    "restore": ("restore", "Restore a backup into an empty data folder."),
    "rollback": ("rollback", "Go back to the copy made before a schema change."),
    "move": ("move", "Move everything between a data folder and PostgreSQL."),
    "doctor": ("doctor", "Check the database and the search index."),
    "lab": ("lab", "Break things on purpose and check that nothing is lost."),
    "bench": ("bench", "Measure how well a model does as an agent, and how fast Everturn is."),
    "secrets": ("secrets", "Show and re-encrypt stored secrets (PostgreSQL)."),
    "password": ("password", "Set or remove the password."),
    "token": ("token", "Create, list and revoke API tokens."),
    "version": ("version", "Show version information."),
}


class Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"everturn.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(
            module, f"{cmd_name}_" if cmd_name in ("import", "open", "run") else cmd_name
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="everturn")
def everturn() -> None:
    """A self-hosted AI agent that never loses a turn."""


def main(arguments: list[str] | None = None) -> object:
    """Run a command; errors of ours are printed with what to do, and give exit code 1."""
    from everturn.cli.common import keep_memory_private, report_errors

    with report_errors():
        keep_memory_private()
        return everturn.main(args=arguments, prog_name="everturn", standalone_mode=True)
    sys.exit(1)
