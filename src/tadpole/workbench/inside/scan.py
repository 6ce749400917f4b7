"""Runs the scanners inside the box, over the files that a JSON request on standard input names.

They come as sides, each a directory with the paths below it, and are told apart in the answer.

A program of its own: bandit and detect-secrets come from the environment that is mounted. Results
go to the file that the request names. Nothing that the scanned tree says turns a check off:
``nosec`` and ``allowlist`` comments and configuration files are not heeded.
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


def bandit(paths: "list[str]") -> "list[dict[str, Any]]":
    """Issues of the Python files."""
    code = [path for path in paths if path.endswith(".py")]
    if not code:  # its import is most of what it costs
        return []
    from bandit.core import config, manager

    run = manager.BanditManager(config.BanditConfig(), "file", ignore_nosec=True)
    run.discover_files(code, False, "")
    run.run_tests()
    return [
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


def secrets(paths: "list[str]") -> "list[dict[str, Any]]":
    """Secrets of the text files."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    found = []
    with default_settings() as settings:
        settings.disable_filters(
            "detect_secrets.filters.allowlist.is_line_allowlisted",
            "detect_secrets.filters.common.is_ignored_due_to_verification_policies",
        )
        for path in paths:
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
    return found


def semgrep(paths: "list[str]", program: str, rules: str) -> "list[dict[str, Any]]":
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
        options += ["--json", "--quiet", "--jobs", "1", "--config", rules]
        done = subprocess.run(
            [sys.executable, program, "scan", *options, "."],
            cwd=place,
            capture_output=True,
            check=False,
        )
        body = json.loads(done.stdout or b"{}")
        wrong = [e for e in body.get("errors", []) if e.get("level") == "error"]
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
    return found


_LEVELS = ("high", "medium", "low")


def main() -> None:
    """Read the request, run each scanner, write down what it found or why it did not run."""
    request = json.loads(sys.stdin.buffer.read())
    logging.disable(logging.CRITICAL)
    with_rules = functools.partial(semgrep, program=request["program"], rules=request["rules"])
    known: dict[str, Callable[[list[str]], list[dict[str, Any]]]] = {
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
    scan: "Callable[[list[str]], list[dict[str, Any]]]", root: str, paths: "list[str]"
) -> "dict[str, Any]":
    try:
        found = scan([f"{root}/{path}" for path in paths]) if paths else []
    except Exception as error:
        return {"found": [], "error": f"{type(error).__name__}: {error}"}
    for item in found:
        item["path"] = item["path"][len(root) + 1 :]
    return {"found": found, "error": ""}


if __name__ == "__main__":
    main()
