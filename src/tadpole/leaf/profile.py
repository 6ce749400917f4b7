"""What a policy is told about its job and its tools: in full, in a few dozen tokens, or in the
published harness's own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tadpole.leaf import published
from tadpole.leaf.calls import CallFormat, render
from tadpole.leaf.tools import ToolName, schema, signature
from tadpole.settings import ProfileName
from tadpole.trace import ToolCall


@dataclass(frozen=True)
class Profile:
    """The system message, and the schemas that go through the chat template (maybe none)."""

    name: ProfileName
    tools: tuple[ToolName, ...]  # those that the policy may call
    system: str
    schemas: tuple[dict[str, Any], ...] = ()


_FULL = """\
You are a software engineer at work in a repository that is checked out in your work directory.
Find out what the task needs, change the code with the tools, and check the change by running it \
or its tests where you can.
Keep changes small and to the point. When the task is done, answer in a sentence or two without \
calling a tool: that ends your work."""

_EXAMPLE = ToolCall(name=ToolName.READ, arguments={"file_path": "a.py"})


def make_profile(
    name: ProfileName,
    form: CallFormat,
    tools: Sequence[ToolName] = tuple(ToolName),
    path: Sequence[str] | None = None,
) -> Profile:
    """The profile ``name`` for a policy that writes its calls in ``form`` and has ``tools``.

    ``path`` is where the frognano profile's package is looked for (default: sys.path). Raises
    ConfigError where it is asked for and is not there.
    """
    if name is ProfileName.FROGNANO:
        system, schemas = published.load(path)
        told = tuple(one for one in schemas if one["function"]["name"] in tools)
        return Profile(name, tuple(tools), system, told)
    if name is ProfileName.FULL:
        return Profile(name, tuple(tools), _FULL, tuple(schema(tool) for tool in tools))
    listed = ", ".join(signature(tool) for tool in tools)
    shape = render(_EXAMPLE, form)
    return Profile(name, tuple(tools), f"Tools: {listed}. No call means done. A call:\n{shape}")
