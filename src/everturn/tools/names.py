"""The names of the built-in tools, known without loading the tools."""

from __future__ import annotations

TOOL_NAMES = frozenset(
    (
        *("apply_patch", "ask_user", "edit_file", "list_files", "python", "read_file"),
        *("search_files", "search_sessions", "terminal", "todo", "web_fetch", "web_search"),
        *("list_documents", "read_document", "search_documents"),
        "write_file",
    )
)
SCHEDULES_TOOL = "schedules"
SKILL_TOOL = "skill"
MEMORY_TOOL = "memory"
DELEGATE_TOOL_NAMES = frozenset(("delegate", "delegate_apply", "delegate_result", "delegate_stop"))
JOB_TOOL_NAMES = frozenset(("job_output", "job_stop", "job_wait", "jobs"))  # where jobs are switched on
BUILT_IN_NAMES = TOOL_NAMES | DELEGATE_TOOL_NAMES | JOB_TOOL_NAMES | {SCHEDULES_TOOL, SKILL_TOOL, MEMORY_TOOL}
