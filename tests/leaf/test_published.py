"""The published profile, from a tiny distribution made here; the real one is never needed."""

import json

import pytest

from tadpole.errors import ConfigError
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.leaf.tools import ToolName
from tadpole.settings import ProfileName

FORM = CallFormat.QWEN_XML


def tool(name):
    return {"type": "function", "function": {"name": name, "description": f"Their {name}."}}


def install(path, text, where="harness/leaf"):
    folder = path / "frognano" / where
    folder.mkdir(parents=True)
    (path / "frognano/__init__.py").write_text("raise ImportError('needs a cluster')\n")
    (folder / "tools.py").write_text(text)
    return [str(path)]


def sound(names=tuple(ToolName)):
    tools = json.dumps([tool(name) for name in names])
    return f"SYSTEM_PROMPT = 'Their words.\\n'\nOPENAI_TOOLS = {tools}\n"


@pytest.mark.parametrize("where", ["harness/leaf", "leaf"])
def test_their_very_text_is_told(make_tokenizer, tmp_path, where):
    path = install(tmp_path, sound(), where)
    profile = make_profile(ProfileName.FROGNANO, FORM, path=path)
    assert profile.system == "Their words.\n" and profile.tools == tuple(ToolName)
    assert list(profile.schemas) == [tool(name) for name in ToolName]
    talk = Dialogue(make_tokenizer("qwen25"), FORM, profile)
    assert "Their Edit." in talk.tokenizer.decode(talk.start("x"))
    few = make_profile(ProfileName.FROGNANO, FORM, (ToolName.READ,), path=path)
    assert [one["function"]["name"] for one in few.schemas] == ["Read"]


def test_one_clear_line_where_it_is_not_installed(tmp_path):
    with pytest.raises(ConfigError) as error:
        make_profile(ProfileName.FROGNANO, FORM, path=[str(tmp_path)])
    assert "not installed" in str(error.value) and "--leaf.profile full" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sound(["Read", "Submit"]), "other tools than this Leaf: Read, Submit"),
        ("SYSTEM_PROMPT = 'x'\n", "KeyError"),
        ("import nothing_like_it\n", "ModuleNotFoundError"),
        ("SYSTEM_PROMPT = OPENAI_TOOLS = 5\n", "TypeError"),
        (sound().replace("'Their words.\\n'", "5"), "no text for SYSTEM_PROMPT"),
    ],
)
def test_another_version_is_refused(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words) as error:
        make_profile(ProfileName.FROGNANO, FORM, path=install(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_package_without_the_file(tmp_path):
    path = install(tmp_path, "", where="other")
    with pytest.raises(ConfigError, match=r"has no harness/leaf/tools\.py"):
        make_profile(ProfileName.FROGNANO, FORM, path=path)
