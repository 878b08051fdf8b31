"""What an agent can do: tools, the sandbox they run in, the policy that decides, profiles, MCP servers.

Imports ``domain`` only. ``engine`` calls it through ``domain.tooling.Toolbox``; ``app`` builds it; ``web``
and ``cli`` show its state (sandbox, rules, servers).
"""

from everturn.tools.browsing import (
    WorkspaceFile,
    WorkspaceFiles,
    WorkspaceText,
    files_in,
    files_named,
    text_of,
)
from everturn.tools.fetching import Fetcher
from everturn.tools.mcp_servers import ServerState
from everturn.tools.policy import Policy, Rule
from everturn.tools.profiles import McpServer, Profile, Profiles, built_in, parse_profiles, read_profiles
from everturn.tools.sandbox import Sandbox, SandboxState
from everturn.tools.schema import ToolFailed, tool
from everturn.tools.toolbox import TOOL_NAMES, EverturnToolbox
from everturn.tools.trust import Trust

__all__ = [
    "TOOL_NAMES",
    "EverturnToolbox",
    "Fetcher",
    "McpServer",
    "Policy",
    "Profile",
    "Profiles",
    "Rule",
    "Sandbox",
    "SandboxState",
    "ServerState",
    "ToolFailed",
    "Trust",
    "WorkspaceFile",
    "WorkspaceFiles",
    "WorkspaceText",
    "built_in",
    "files_in",
    "files_named",
    "parse_profiles",
    "read_profiles",
    "text_of",
    "tool",
]
