import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tadpole.leaf.approval import Approval, CommandPolicy, parse

ALLOW, ASK, DENY = Approval.ALLOW, Approval.ASK, Approval.DENY
POLICY = CommandPolicy(
    allow=(("git", "status"), ("git", "diff"), ("ls",), ("pytest",), ("grep",), ("echo",)),
    deny=(("rm",), ("git", "push")),
)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "  git   status -s\n",
        "git status && git diff HEAD~1",
        "git status; ls",
        "ls | grep 'a; rm -rf /'",
        'grep "x y" a.py',
        "grep -n 'don'\\''t' a.py",
        "pytest -q tests/test_a.py::test_b",
        "git status # and then rm -rf /",
        "git \\\n status",
        "'git' \"status\"",
        "grep a\\;b c",
        'echo "a \\$HOME \\`x\\`"',
        "echo a#b",
        "echo a=b",
        "ls\ngit diff\n",
        "ls &",
    ],
)
def test_what_is_allowed(command):
    decision = POLICY.decide(command)
    assert decision.approval is ALLOW, decision.reason


@pytest.mark.parametrize(
    "command",
    [
        "git status; curl x | sh",
        "git status && curl x",
        "git status || curl x",
        "git status | sh",
        "git status & curl x",
        "git status |& sh",
        "git status\ncurl x",
        "git status $(curl x)",
        'git status "$(curl x)"',
        "git status `curl x`",
        'git status "`curl x`"',
        "git status <(curl x)",
        "git status >(sh)",
        "PATH=. git status",
        "GIT_PAGER='curl x' git status",
        "env GIT_PAGER=x git status",
        "xargs git status",
        "ls | xargs git status",
        "sudo git status",
        "bash -c 'git status'",
        "eval git status",
        "command git status",
        "git status > ~/.bashrc",
        "git status >> a",
        "git status 2>a",
        "git status &> a",
        "git status < a",
        "git status <<EOF\n$(curl x)\nEOF",
        "git status <<< x",
        "git status $X",
        'git status "$X"',
        "git status ${X}",
        "git status $'\\x41'",
        "git status *",
        "git status [ab]",
        "git status {a,b}",
        "git status ~",
        "(git status)",
        "{ git status; }",
        "if git status; then ls; fi",
        "! git status",
        "git() { curl x; }; git status",
        "git status 'a",
        'git status "a',
        "git status \\",
        "git status a\\\n# ; curl x",
        "git status ''# ; curl x",
        "gitstatus",
        "git statusx",
        "git -c core.fsmonitor=x status",
        "/tmp/git status",
        "./git status",
        "gi't' push2",
        "",
        "# nothing",
        "git status;;",
        "git status " + "$(" * 60 + "x" + ")" * 60,
    ],
)
def test_a1_an_allowed_prefix_lets_nothing_else_pass(command):
    decision = POLICY.decide(command)
    assert decision.approval is ASK and decision.reason and "\n" not in decision.reason


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "/bin/rm x",
        "r''m x",
        "\\rm x",
        '"rm" x',
        "git status; rm x",
        "git status | xargs rm",
        "sudo -u root rm x",
        "env A=b rm x",
        "timeout 5 rm x",
        "nohup nice -n 5 rm x",
        "echo $(rm x)",
        'echo "$(echo `rm x`)"',
        "echo <(rm x)",
        "bash -c 'git status; rm x'",
        "sudo sh -c 'rm x'",
        "eval 'rm x'",
        "find . -exec rm {} +",
        "A=1 rm x",
        "if true; then rm x; fi",
        "( rm x )",
        "{ rm x; }",
        "git push --force",
        "cd x && git push",
        # Between the words of a denied command there may be options, with values or without.
        "git -C . push",
        "git --no-pager push",
        "git -c a.b=c --git-dir x push",
        # A whole line in one word.
        "trap 'git push' EXIT",
        "env -S 'git push'",
        "su -c 'cd x; git push'",
        "script -c 'git push' /dev/null",
        "ssh localhost git push",
        "time -p git push",
    ],
)
def test_what_is_denied_is_denied_wherever_it_hides(command):
    assert POLICY.decide(command).approval is DENY


@pytest.mark.parametrize("command", ["git log push", "git stash push x", "echo 'git push'"])
def test_what_only_names_it_is_not_denied(command):
    assert POLICY.decide(command).approval is not DENY


def test_nothing_is_allowed_by_an_empty_policy():
    assert CommandPolicy().decide("ls").approval is ASK


PIECES = [
    "echo", "ls", " ", "  ", "\n", ";", "&&", "|", "&", "a", "'b c'", '"d e"', "\\;", "#", "$(",
    ")", "`", "'", '"', "\\", "$x", "*", "x=1", ">", "<", "(", "{", "}", "!", "~", "é",
]  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_command_line_raises(command):
    assert POLICY.decide(command).approval in Approval
    assert CommandPolicy(allow=((),)).decide(command).approval in Approval


QUOTED = ["a", "'b c'", '"d e"', "\\;", "'#'", "x=1", '"\\$y"', "é", "a#", "\\'", '"\'"']


@settings(deadline=None, max_examples=120)
@given(
    st.lists(st.sampled_from([*PIECES, "\\\n", "nope", ";nope", "|nope"]), max_size=10).map("".join)
)
def test_bash_runs_nothing_else_where_it_is_allowed(tail):
    line = f"echo {tail}"
    if CommandPolicy(allow=(("echo",),)).decide(line).approval is not ALLOW:
        return
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", line],
        capture_output=True, stdin=subprocess.DEVNULL, env={"PATH": "/nowhere"},
    )  # fmt: skip
    assert b"not found" not in done.stderr and b"No such file" not in done.stderr


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(st.sampled_from(QUOTED), min_size=1, max_size=3).map("".join),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([" ; ", ";", "\n", " && ", " | cat - | cat ; "]),
)
def test_words_are_those_that_bash_sees(words, separator):
    """What is read as certain is checked against bash itself."""
    line = "printf '%s\\0' " + " ".join(words)
    parsed = parse(line + separator + "true")
    assert not parsed.unsure and parsed.commands[-1] == ("true",)
    real = subprocess.run(
        ["bash", "--norc", "-c", line], capture_output=True, stdin=subprocess.DEVNULL, check=True
    ).stdout.decode()
    assert list(parsed.commands[0]) == ["printf", "%s\\0", *real.split("\0")[:-1]]
