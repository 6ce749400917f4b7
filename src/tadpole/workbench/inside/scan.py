"""Runs the scanners inside the box, over the files that a JSON request on standard input names.

A program of its own: bandit and detect-secrets come from the environment that is mounted. Results
go to the file that the request names. Nothing that the scanned tree says turns a check off:
``nosec`` and ``allowlist`` comments and configuration files are not heeded.
"""

import json
import logging
import sys
from typing import Any


def bandit(paths: "list[str]") -> "list[dict[str, Any]]":
    """Issues of the Python files."""
    from bandit.core import config, manager

    run = manager.BanditManager(config.BanditConfig(), "file", ignore_nosec=True)
    run.discover_files([path for path in paths if path.endswith(".py")], False, "")
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


def main() -> None:
    """Read the request, run each scanner, write down what it found or why it did not run."""
    request = json.loads(sys.stdin.buffer.read())
    logging.disable(logging.CRITICAL)
    answer = {}
    for name, scan in (("bandit", bandit), ("detect-secrets", secrets)):
        if name not in request["scanners"]:
            continue
        try:
            answer[name] = {"found": scan(request["paths"]), "error": ""}
        except Exception as error:
            answer[name] = {"found": [], "error": f"{type(error).__name__}: {error}"}
    with open(request["out"], "w", encoding="utf-8") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
