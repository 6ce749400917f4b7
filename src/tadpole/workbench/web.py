"""The same review as a local page: loopback only, a secret in the address, nothing from outside.

Guards against: other machines (it listens on 127.0.0.1 alone), other users and pages of other
sites (without the token in the path there is nothing here; the Host header must be ours, so a
rebound name does not help; a decision must come from this page), scripts in what is shown (there
are none: the policy of the page forbids them all, and everything is escaped).

Does not guard against: whoever can read the address, such as programs of the same user.
"""

import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tadpole.errors import UsageError
from tadpole.workbench.gate import Verdict
from tadpole.workbench.passport import Ruling
from tadpole.workbench.proposal import Proposal
from tadpole.workbench.show import view

_LARGEST = 20_000  # bytes of a decision
_SECONDS = 20.0  # for one request


@dataclass
class Page:
    """A page about one proposal; :meth:`serve` returns once it is decided there.

    ``decide`` signs a decision, and raises UsageError where it cannot be.
    """

    proposal: Proposal
    decide: Callable[[Ruling, str], None]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    ruling: Ruling | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # for one decision at a time

    def __post_init__(self) -> None:
        page = self

        class Handler(_Handler):
            served = page

        # Threads, because a browser also opens connections that it does not use yet.
        self._server = _Server(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._server.socket.getsockname()[1])

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def serve(self) -> Ruling:
        """Answer until a decision was made; Ctrl-C leaves it open."""
        try:
            while self.ruling is None:
                self._server.handle_request()
        finally:
            self._server.server_close()
        return self.ruling

    def close(self) -> None:
        """Stop listening without a decision."""
        self._server.server_close()

    def html(self, nonce: str, said: str = "", done: str = "") -> str:
        """The page; ``said`` is what was wrong with a decision, ``done`` what was decided."""
        environment = Environment(
            loader=PackageLoader("tadpole.workbench", "templates"),
            autoescape=select_autoescape(["j2", "html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        css = (Path(__file__).with_name("templates") / "review.css").read_text(encoding="utf-8")
        return environment.get_template("review.html.j2").render(
            view=view(self.proposal),
            blocked=self.proposal.passport.gate.verdict is Verdict.BLOCK,
            css=Markup(css),
            nonce=nonce,
            said=said,
            done=done,
        )


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    timeout = 0.2  # seconds between two looks for a decision

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a browser that goes away in the middle is no news for the terminal."""


class _Handler(BaseHTTPRequestHandler):
    served: Page
    timeout = _SECONDS
    server_version = "tadpole"
    sys_version = ""

    def do_GET(self) -> None:
        """The page."""
        if self._ours():
            self._page(200)

    def do_POST(self) -> None:
        """A decision."""
        if not self._ours():
            return
        origin = self.headers.get("Origin")
        length = self.headers.get("Content-Length", "")
        if origin not in (None, f"http://{self._host()}"):
            self._plain(403, "not from this page")
            return
        if not length.isascii() or not length.isdigit() or int(length) > _LARGEST:
            self._plain(413, "too long")
            return
        form = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"))
        words = {name: values[0] for name, values in form.items()}
        with self.served.lock:
            self._decide(words)

    def _decide(self, words: dict[str, str]) -> None:
        if self.served.ruling is not None:  # a button that was pressed twice
            self._page(200, done=self.served.ruling.value.replace("_", " "))
            return
        try:
            ruling = Ruling(words.get("ruling", ""))
            self.served.decide(ruling, words.get("reason", ""))
        except ValueError:
            self._page(400, said="choose what to do")
        except UsageError as error:
            self._page(409, said=str(error))
        else:
            self._page(200, done=ruling.value.replace("_", " "))
            self.served.ruling = ruling

    def _host(self) -> str:
        return f"127.0.0.1:{self.served.port}"

    def _ours(self) -> bool:
        """Whether the request knows the token and names us; answers it where not."""
        given = self.path.encode("utf-8", "replace")
        expected = f"/{self.served.token}/".encode()
        if self.headers.get("Host") == self._host() and hmac.compare_digest(given, expected):
            return True
        self._plain(404, "nothing here")
        return False

    def _page(self, status: int, *, said: str = "", done: str = "") -> None:
        nonce = secrets.token_urlsafe(16)
        body = self.served.html(nonce, said, done).encode()
        policy = f"default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; "
        self._send(status, "text/html", body, f"{policy}base-uri 'none'; frame-ancestors 'none'")

    def _plain(self, status: int, text: str) -> None:
        self._send(status, "text/plain", f"{text}\n".encode(), "default-src 'none'")

    def _send(self, status: int, kind: str, body: bytes, policy: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy),
            # Not "no-referrer": browsers then send decisions with the origin "null".
            ("Referrer-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the address holds the token."""
