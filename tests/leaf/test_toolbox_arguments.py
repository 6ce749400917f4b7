import json
import subprocess
import sys
from pathlib import Path

import pytest

from tadpole.leaf import toolbox
from tadpole.leaf.tools import ToolName, schema


@pytest.mark.parametrize("value", [True, "true", " True ", 1, "TRUE"])
def test_e23_truth(box, value):
    box.put("a", "x x")
    box.ok("Edit", file_path="a", old_string="x", new_string="y", replace_all=value)
    assert box.get("a") == b"y y"


@pytest.mark.parametrize("value", ["maybe", 2, [], "", 0.5])
def test_e23_no_truth(box, value):
    box.put("a", "x x")
    text = box.refused("Edit", file_path="a", old_string="x", new_string="y", replace_all=value)
    assert text.startswith("TypeError: replace_all must be true or false, not ")


@pytest.mark.parametrize("value", ["many", "1.5", 2.5, True, [1], "1e400", float("nan")])
def test_no_number(box, value):
    box.put("a", "x")
    assert "limit must be a whole number" in box.refused("Read", file_path="a", limit=value)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("Read", {}, "file_path is missing; Read takes file_path, offset, limit"),
        ("Edit", {"file_path": "a", "old_string": "x"}, "new_string is missing"),
        ("Edit", {"file_path": "a", "replaceAll": True}, "no parameter replaceAll; Edit takes"),
        ("Write", {"file_path": "a", "content": {"a": 1}}, "content must be a string"),
        ("Write", {"file_path": "a", "content": 1.5}, "content must be a string"),
        ("Read", {"file_path": ""}, "file_path is empty"),
        ("Read", {"file_path": "a\0b"}, "null"),
        ("Bash", {"command": ""}, "command is empty"),
        ("Bash", {"command": "x", "timeout": 0}, "above 0"),
        ("Bash", {"command": "x", "timeout": "soon"}, "timeout must be a number"),
        ("Delete", {}, "unknown tool Delete; use one of Read, Write, Edit, Glob, Bash"),
    ],
)
def test_refused_arguments(box, tool, arguments, words):
    assert words in box.refused(tool, **arguments)


@pytest.mark.parametrize("arguments", [None, [], "x", 3])
def test_arguments_must_be_an_object(box, arguments):
    text, error = toolbox.call("Read", arguments, str(box.root), box.bash)
    assert error and "must be a JSON object" in text


def test_path_stands_for_file_path_and_null_for_not_given(box):
    box.put("a", "x\n")
    assert box.ok("Read", path="a", offset=None) == "a\n1. x"


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        ({}, 120), ({"timeout": 1200}, 1200), ({"timeout": "30"}, 30), ({"timeout": 0.5}, 0.5),
        ({"timeout": 9999}, 9999), ({"timeout": 10_000}, 10), ({"timeout": 120_000}, 120),
        ({"timeout_ms": 1500}, 1.5),
    ],
)  # fmt: skip
def test_b8_timeouts_are_seconds(box, arguments, seconds):
    asked = []

    def bash(command, limit):
        asked.append(limit)
        return {"code": 0, "stdout": b"", "stderr": b"", "reason": "exited", "seconds": 0.0}

    box.bash = bash
    box.ok("Bash", command="true", **arguments)
    assert asked == [seconds]


def test_schemas_are_those_of_the_contract():
    told = {tool: schema(tool)["function"]["parameters"] for tool in ToolName}
    assert {tool: (list(p["properties"]), p["required"]) for tool, p in told.items()} == {
        "Read": (["file_path", "offset", "limit"], ["file_path"]),
        "Write": (["file_path", "content"], ["file_path", "content"]),
        "Edit": (
            ["file_path", "old_string", "new_string", "replace_all"],
            ["file_path", "old_string", "new_string"],
        ),
        "Glob": (["pattern", "path"], ["pattern"]),
        "Bash": (["command", "description", "timeout"], ["command"]),
    }


def test_the_toolbox_runs_on_an_old_python_alone(box, old_python):
    box.put("a.py", "x = 1\r\n")
    script = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import toolbox\n"
        "bash = lambda command, seconds: {'code': 0, 'stdout': b'hi', 'stderr': b'',"
        " 'reason': 'exited', 'seconds': 0.0}\n"
        "for name, arguments in json.loads(sys.argv[3]):\n"
        "    print(toolbox.call(name, arguments, sys.argv[2], bash))\n"
    )
    steps = [
        ("Read", {"file_path": "a.py"}),
        ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2\ny = 3"}),
        ("Write", {"file_path": "d/b.py", "content": "z\n"}),
        ("Glob", {"pattern": "**/*.py"}),
        ("Bash", {"command": "x"}),
        ("Read", {"file_path": "c.py"}),
    ]
    argv = [
        old_python,
        "-I",
        "-c",
        script,
        str(Path(toolbox.__file__).parents[1]),
        str(box.root),
        json.dumps(steps),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "('a.py\\n1. x = 1', False)"
    assert box.get("a.py") == b"x = 2\r\ny = 3\r\n"
    assert lines[3] == "('a.py\\nd/b.py', False)"
    assert lines[5].endswith("True)")
    assert sys.version_info >= (3, 11)
