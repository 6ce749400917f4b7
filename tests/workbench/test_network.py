"""Network by an allow-list: real boxes, real servers on this machine, and what may not go out."""

import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from making import FIXED, VENV, call, git, solver
from test_solve import begun, bench_of

from tadpole.cli.main import run
from tadpole.errors import SandboxUnavailable, UsageError
from tadpole.sandboxes import ladder
from tadpole.sandboxes.docker import docker
from tadpole.settings import BoxKind
from tadpole.workbench.allowlist import Allowed, entry_for, split
from tadpole.workbench.proposal import load
from tadpole.workbench.show import sandbox_rows
from tadpole.workbench.solve import solve
from tadpole.workbench.solver import Event, EventKind


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 80, True),
        ("PyPI.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "pypi.org.evil.net", 443, False),
        ("pypi.org", "www.pypi.org", 443, False),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "badexample.org", 443, False),
        ("localhost:8080", "localhost", 8080, True),
        ("localhost:8080", "localhost", 80, False),
        ("[::1]:8080", "::1", 8080, True),
        ("10.0.0.5", "10.0.0.5", 443, True),
    ],
)
def test_an_entry_covers_its_host_and_ports_alone(entry, host, port, covered):
    assert Allowed.parse(entry).covers(host, port) is covered


@pytest.mark.parametrize(
    "text", ["", "*", "*.*.org", "http://pypi.org", "pypi.org/simple", "a b", "x:0", "x:99999",
             "x:", "-x.org", "2130706433", "é.org"],
)  # fmt: skip
def test_what_is_no_host_is_refused_with_what_to_type(text: str):
    with pytest.raises(UsageError, match=r"--allow pypi\.org"):
        Allowed.parse(text)


def test_hosts_and_ports_are_told_apart():
    assert split("[::1]:80") == ("::1", 80) and split("[::1]") == ("::1", 0)
    assert split("::1") == ("::1", 0) and split("A.org.:443") == ("a.org", 443)
    assert split("a.org") == ("a.org", 0) and split("a.org:x") == ("a.org", None)


@pytest.mark.parametrize(
    ("entry", "address", "may"),
    [
        ("example.org", "93.184.216.34", True),
        ("example.org", "10.1.2.3", True),  # a mirror inside the house, named whole
        ("*.example.org", "10.1.2.3", False),
        ("*.example.org", "93.184.216.34", True),
        ("example.org", "127.0.0.1", False),
        ("example.org", "::ffff:127.0.0.1", False),
        ("example.org", "169.254.169.254", False),  # where clouds keep credentials
        ("example.org", "0.0.0.0", False),
        ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_a_name_does_not_lead_to_this_machine_or_its_neighbours(entry, address, may):
    assert Allowed.parse(entry).may_be_at(ipaddress.ip_address(address)) is may


def test_the_most_narrow_entry_counts():
    wide, narrow = Allowed.parse("*.example.org"), Allowed.parse("a.example.org")
    assert entry_for([wide, narrow], "a.example.org", 443) is narrow
    assert entry_for([wide, narrow], "b.example.org", 443) is wide
    assert entry_for([wide, narrow], "c.org", 443) is None


class Web(BaseHTTPRequestHandler):
    """Answers what it was asked, and keeps it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Host")))
        body = f"hello from {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.asked.append((self.path, self.rfile.read(size)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    made.asked = []
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


async def tried(engine, repo: Path, scratch: Path, hosts, *commands: str):
    events: list[Event] = []
    bench = bench_of(engine, scratch, events)
    # What the gate finds is not looked at here.
    run_, job, base = begun(repo, network=tuple(hosts), test_command="true")
    fix = call("Write", file_path="calc.py", content=FIXED)
    turns = [*(call("Bash", command=command) for command in commands), fix]
    (row,) = await solve(bench, run_, job, base, solver(engine, turns))
    passport = load(run_.path / "proposals" / row.proposal, bench.key).passport
    return passport, [e for e in events if e.kind is EventKind.RESULT], events


@pytest.mark.parametrize(
    "kind",
    [BoxKind.AUTO, BoxKind.FLAT, pytest.param(BoxKind.CONTAINER, marks=pytest.mark.slow)],
)
async def test_the_allowed_host_is_reached_and_nothing_else(
    repo: Path, tmp_path: Path, web, kind: BoxKind
):
    if kind is BoxKind.CONTAINER:
        try:
            docker()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
    port = web.server_address[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        beside = other.getsockname()[1]
        fetch = "python -c \"import urllib.request as u; print(u.urlopen('{}').read().decode())\""
        passport, seen, events = await tried(
            ladder.make(kind), repo, tmp_path, [f"127.0.0.1:{port}"],
            # With a proxy for this address too, which NO_PROXY leaves to the box itself.
            f"no_proxy= NO_PROXY= {fetch.format(f'http://127.0.0.1:{port}/in?a=b')}",
            f"no_proxy= NO_PROXY= {fetch.format(f'http://127.0.0.1:{beside}/')}",
            f"{fetch.format(f'http://127.0.0.1:{port}/direct')}",  # the box's own loopback
            fetch.format("http://example.org/"),
            "ls -l /opt/network; python -c 'import socket; "
            "socket.socket(socket.AF_UNIX).connect(\"/opt/network/door\")'",
        )  # fmt: skip
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert "hello from /in?a=b" in seen[0].text
    assert "HTTP Error 403" in seen[1].text
    assert "Connection refused" in seen[2].text
    assert "HTTP Error 403" in seen[3].text
    assert "door.py" in seen[4].text and "FileNotFoundError" in seen[4].text
    assert web.asked == [("/in?a=b", f"127.0.0.1:{port}")]
    facts = passport.sandbox
    assert facts.engine == kind or kind is BoxKind.AUTO
    assert facts.network == (f"127.0.0.1:{port}",)
    told = [(r.host, r.port, r.allowed, r.times) for r in facts.reached]
    assert told == [("127.0.0.1", port, True, 1), ("127.0.0.1", beside, False, 1),
                    ("example.org", 80, False, 1)]  # fmt: skip
    rows = sandbox_rows(passport.sandbox)
    assert ("network", f"only 127.0.0.1:{port}") in rows
    assert any(name == "refused" and "example.org:80" in value for name, value in rows)
    assert [e.error for e in events if e.kind is EventKind.NETWORK] == [False, True, True]


async def test_a_request_is_for_the_host_that_was_checked(repo: Path, tmp_path: Path, web, engine):
    """A tunnel, a body, and a Host header that says something else."""
    port = web.server_address[1]
    raw = (
        "import os, socket\n"
        "def ask(data):\n"
        "    s = socket.create_connection(('127.0.0.1', 3128)); s.sendall(data)\n"
        "    s.settimeout(20); print(s.makefile('rb').readline(), flush=True); return s\n"
        f"ask(b'GET http://127.0.0.1:{port}/a HTTP/1.1\\r\\nHost: secret.corp\\r\\n\\r\\n')\n"
        f"s = ask(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n"
        "s.sendall(b'POST /b HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 3\\r\\n\\r\\nabc')\n"
        "print(s.recv(100))\n"
        "ask(b'CONNECT 127.0.0.1:22 HTTP/1.1\\r\\n\\r\\n')\n"
        "ask(b'nonsense\\r\\n\\r\\n')\n"
        "ask(b'GET http://[::1/ HTTP/1.1\\r\\n\\r\\n')\n"
        "ask(b'x' * 70000)\n"
    )
    passport, seen, _ = await tried(
        engine, repo, tmp_path, [f"127.0.0.1:{port}"], f"python - <<'EOF'\n{raw}EOF"
    )
    lines = [line for line in seen[0].text.splitlines() if line.startswith("b'")]
    assert [line[2:].split(" ")[1] for line in lines[:2]] == ["200", "200"], seen[0].text
    assert "204" in lines[2]
    assert [line[2:].split(" ")[1] for line in lines[3:]] == ["403", "400", "400", "400"]
    assert web.asked == [("/a", f"127.0.0.1:{port}"), ("/b", b"abc")]
    assert sum(r.sent for r in passport.sandbox.reached if r.allowed) > 60


async def test_without_being_asked_there_is_no_network(repo: Path, tmp_path: Path, engine):
    passport, seen, _ = await tried(
        engine, repo, tmp_path, [], "env | grep -i proxy; ls /opt/network; echo -$HTTPS_PROXY-"
    )
    assert "--" in seen[0].text and "3128" not in seen[0].text
    assert passport.sandbox.network == () == passport.sandbox.reached
    assert ("network", "none") in sandbox_rows(passport.sandbox)
    assert passport.sandbox.engine in ("session", "flat")


def test_what_cannot_be_allowed_begins_nothing(repo: Path, monkeypatch, capsys):
    monkeypatch.chdir(repo)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    asked = ["solve", "x", "--model", "openai:m", "--venv", str(VENV)]
    assert run([*asked, "--allow", "http://pypi.org"]) == 2
    assert "is no host" in capsys.readouterr().err
    elsewhere = ("engine=harbor", "environment=docker", "image=python:3.12")
    asked += [word for one in elsewhere for word in f"--sandbox.{one}".split("=", 1)]
    assert run([*asked, "--allow", "pypi.org"]) == 2
    assert "--allow needs boxes of this machine" in capsys.readouterr().err
    assert run(["solve", "--resume", "--allow", "pypi.org"]) == 2
    assert "keeps its own --allow" in capsys.readouterr().err
    assert run(["solve", "--resume"]) == 2 and "no unfinished job" in capsys.readouterr().err
    assert git(repo, "status", "--porcelain") == ""
