"""Runs the scanners inside the box, over the files that a JSON request on standard input names.

They come as sides, each a directory with the paths below it, and are told apart in the answer.

A program of its own: bandit and detect-secrets come from the environment that is mounted. Results
go to the file that the request names. Nothing that the scanned tree says turns a check off:
``nosec`` and ``allowlist`` comments and configuration files are not heeded. A file that a scanner
was given and did not read is named, with the reason.
"""

import functools
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

# What was found, and (path, reason) of what was not read; path "": it is not said of which.
Scanned = tuple[list[dict[str, Any]], list[tuple[str, str]]]


def bandit(paths: "list[str]") -> Scanned:
    """Issues of the Python files."""
    code = [path for path in paths if path.endswith(".py")]
    if not code:  # its import is most of what it costs
        return [], []
    from bandit.core import config, manager

    run = manager.BanditManager(config.BanditConfig(), "file", ignore_nosec=True)
    run.discover_files(code, False, "")
    run.run_tests()
    found = [
        {
            "tool": "bandit",
            "rule": f"{issue.test_id} {issue.test}",
            "path": issue.fname,
            "line": issue.lineno,
            "severity": str(issue.severity).lower(),
            "message": " ".join(issue.text.split()),
        }
        for issue in run.get_issue_list("LOW", "LOW")
    ]
    return found, [(path, str(why)) for path, why in run.skipped]


def secrets(paths: "list[str]") -> Scanned:
    """Secrets of the text files."""
    from detect_secrets.core.scan import get_filters_with_parameter, scan_file
    from detect_secrets.settings import default_settings

    found, unread = [], []
    with default_settings() as settings:
        settings.disable_filters(
            "detect_secrets.filters.allowlist.is_line_allowlisted",
            "detect_secrets.filters.common.is_ignored_due_to_verification_policies",
        )
        some = get_filters_with_parameter("filename")
        by_name = [one for one in some if one.injectable_variables == {"filename"}]
        for path in paths:
            # It passes over both in silence.
            if any(passes_over(path) for passes_over in by_name):
                unread.append((path, "passed over by its name"))
                continue
            if not _decodes(path):
                unread.append((path, "not UTF-8"))
                continue
            for secret in scan_file(path):
                found.append(
                    {
                        "tool": "detect-secrets",
                        "rule": secret.type,
                        "path": path,
                        "line": secret.line_number,
                        "severity": "high",
                        "message": f"looks like a secret: {secret.type}",
                    }
                )
    return found, unread


def _decodes(path: str) -> bool:
    try:
        with open(path) as stream:  # in the encoding in which the scanner opens it
            stream.read()
    except UnicodeDecodeError:
        return False
    return True


def semgrep(paths: "list[str]", program: str, rules: str) -> Scanned:
    """Findings of ``rules``, over copies: no ignore file of the tree hides a file."""
    severities = {"error": "high", "warning": "medium", "info": "low", "critical": "high"}
    with tempfile.TemporaryDirectory() as place:
        # Empty, so that nothing is left out: by default tests are.
        open(os.path.join(place, ".semgrepignore"), "w").close()
        for path in paths:
            copy = place + path
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            if os.path.basename(path) != ".semgrepignore":
                shutil.copyfile(path, copy)
        options = ["--metrics=off", "--disable-version-check", "--no-git-ignore", "--disable-nosem"]
        options += ["--max-target-bytes", "0"]  # no bound: large files would be left out in silence
        options += ["--json", "--quiet", "--jobs", "1", "--config", rules]
        done = subprocess.run(
            [sys.executable, program, "scan", *options, "."],
            cwd=place,
            capture_output=True,
            check=False,
        )
        body = json.loads(done.stdout or b"{}")
        errors = body.get("errors", [])
        wrong = [e for e in errors if e.get("level") == "error"]
        if done.returncode not in (0, 1) or "results" not in body or wrong:
            words = wrong[0].get("message", "") if wrong else done.stderr.decode(errors="replace")
            raise RuntimeError(" ".join(words.split())[-300:] or f"exit code {done.returncode}")
        found = []
        for item in body["results"]:
            extra = item["extra"]
            level = str(extra["severity"]).lower()
            found.append(
                {
                    "tool": "semgrep",
                    "rule": str(item["check_id"]).rpartition(".")[2],
                    "path": "/" + os.path.normpath(item["path"]),
                    "line": item["start"]["line"],
                    "severity": severities.get(level, level if level in _LEVELS else "medium"),
                    "message": " ".join(extra["message"].split()),
                }
            )
    return found, [_unread(error) for error in errors]


def _unread(error: "dict[str, Any]") -> "tuple[str, str]":
    """What semgrep did not read to its end: it goes on after what does not parse, or takes long."""
    path = str(error.get("path") or "")
    why = " ".join(str(error.get("message") or error.get("type") or "not said why").split())
    return ("/" + os.path.normpath(path) if path else ""), why[:160]


_LEVELS = ("high", "medium", "low")


def main() -> None:
    """Read the request, run each scanner, write down what it found or why it did not run."""
    request = json.loads(sys.stdin.buffer.read())
    logging.disable(logging.CRITICAL)
    with_rules = functools.partial(semgrep, program=request["program"], rules=request["rules"])
    known: dict[str, Callable[[list[str]], Scanned]] = {
        "bandit": bandit,
        "detect-secrets": secrets,
        "semgrep": with_rules,
    }
    asked = {name: scan for name, scan in known.items() if name in request["scanners"]}
    answer = [
        {name: _answer(scan, root, paths) for name, scan in asked.items()}
        for root, paths in request["sides"]
    ]
    with open(request["out"], "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


def _answer(
    scan: "Callable[[list[str]], Scanned]", root: str, paths: "list[str]"
) -> "dict[str, Any]":
    try:
        found, unread = scan([f"{root}/{path}" for path in paths]) if paths else ([], [])
    except Exception as error:
        return {"found": [], "unread": [], "error": f"{type(error).__name__}: {error}"}
    for item in found:
        item["path"] = item["path"][len(root) + 1 :]
    named = [(path[len(root) + 1 :], why) for path, why in unread]
    return {"found": found, "unread": named, "error": ""}


if __name__ == "__main__":
    main()
