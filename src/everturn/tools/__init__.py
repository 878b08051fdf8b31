"""What an agent can do: tools, the sandbox they run in, the policy that decides, profiles, MCP servers.

Imports ``domain`` only. ``engine`` calls it through ``domain.tool.Toolbox``; ``app`` builds it; ``web``
and ``cli`` show its state (sandbox, rules, servers).
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.tools.files.browse import (
        FileList,
        WorkspaceFile,
        files_in,
        files_named,
    )
    from everturn.tools.folders import FolderLine, FolderList
    from everturn.tools.function_tool import tool
    from everturn.tools.mcp.servers import ServerState
    from everturn.tools.names import DELEGATE_TOOL_NAMES, JOB_TOOL_NAMES, TOOL_NAMES
    from everturn.tools.own.hooks import Hook, after_turn, before_call
    from everturn.tools.own.own_tool import OwnTool
    from everturn.tools.own.own_tools import OwnTools
    from everturn.tools.policy.policy import Policy, Rule
    from everturn.tools.policy.trust import Trust
    from everturn.tools.profiles import McpServer, Profile, Profiles, built_in, parse_profiles, read_profiles
    from everturn.tools.sandbox.sandbox import Sandbox
    from everturn.tools.sandbox.trial import SandboxState
    from everturn.tools.schema import Action, ToolFailed
    from everturn.tools.toolbox import EverturnToolbox, ToolServices
    from everturn.tools.web.fetch import Fetcher

__all__ = [
    "DELEGATE_TOOL_NAMES",
    "JOB_TOOL_NAMES",
    "TOOL_NAMES",
    "Action",
    "EverturnToolbox",
    "Fetcher",
    "FileList",
    "FolderLine",
    "FolderList",
    "Hook",
    "McpServer",
    "OwnTool",
    "OwnTools",
    "Policy",
    "Profile",
    "Profiles",
    "Rule",
    "Sandbox",
    "SandboxState",
    "ServerState",
    "ToolFailed",
    "ToolServices",
    "Trust",
    "WorkspaceFile",
    "after_turn",
    "before_call",
    "built_in",
    "files_in",
    "files_named",
    "parse_profiles",
    "read_profiles",
    "tool",
]

__getattr__ = lazy_names(__name__)
