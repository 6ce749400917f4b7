"""The five tools as they are told to a model: OpenAI-style function schemas, in our own words."""

from enum import StrEnum
from typing import Any

from tadpole.leaf.toolbox import PARAMETERS


class ToolName(StrEnum):
    """The tools of the published Leaf harness."""

    READ = "Read"
    WRITE = "Write"
    EDIT = "Edit"
    GLOB = "Glob"
    BASH = "Bash"


_PURPOSE = {
    ToolName.READ: "Show a text file with line numbers.",
    ToolName.WRITE: "Create a file, or replace a whole one. Missing directories are made.",
    ToolName.EDIT: (
        "Replace a piece of text in a file. old_string must be copied exactly, without line "
        "numbers, and must occur once unless replace_all is true."
    ),
    ToolName.GLOB: "List the files that match a pattern; ** stands for any number of directories.",
    ToolName.BASH: (
        "Run a command with bash in the work directory. Each call is a fresh shell without input; "
        "only files persist, and processes left in the background are ended."
    ),
}
_MEANING = {
    ("Read", "file_path"): "The file, relative to the work directory.",
    ("Read", "offset"): "First line to show, counted from 1.",
    ("Read", "limit"): "How many lines to show.",
    ("Write", "file_path"): "The file, relative to the work directory.",
    ("Write", "content"): "All of the file's new text.",
    ("Edit", "file_path"): "The file, relative to the work directory.",
    ("Edit", "old_string"): "The text as it is now.",
    ("Edit", "new_string"): "The text to put there.",
    ("Edit", "replace_all"): "Replace every occurrence.",
    ("Glob", "pattern"): "For example **/*.py.",
    ("Glob", "path"): "The directory to start from.",
    ("Bash", "command"): "The command line.",
    ("Bash", "description"): "What it is for, in a few words.",
    ("Bash", "timeout"): "Seconds until it is ended; 120 if not given.",
}
_JSON_TYPE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema(tool: ToolName) -> dict[str, Any]:
    """The function schema of one tool; names, types and order are those of the toolbox."""
    told = [row for row in PARAMETERS[tool] if (tool, row[0]) in _MEANING]
    properties = {
        name: {"type": _JSON_TYPE[kind], "description": _MEANING[tool, name]}
        for name, kind, _ in told
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [name for name, _, required in told if required],
    }
    function = {"name": tool.value, "description": _PURPOSE[tool], "parameters": parameters}
    return {"type": "function", "function": function}


def signature(tool: ToolName) -> str:
    """The tool in one short line: its name and the parameters that it needs."""
    return f"{tool.value}({', '.join(name for name, _, needed in PARAMETERS[tool] if needed)})"
