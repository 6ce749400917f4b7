"""One server, looked at from all sides, in the order in which a failure explains the next."""

import difflib
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tadpole.errors import ConfigError, ModelError
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.profile import make_profile
from tadpole.models.openai_chat import OpenAIChat
from tadpole.servers import checks
from tadpole.servers.advice import Fault, advice
from tadpole.servers.checks import Examinee
from tadpole.servers.finding import Finding
from tadpole.servers.footprint import footprint
from tadpole.servers.kind import NoServer, Server, ServerKind, identify
from tadpole.servers.window import Ending, probe
from tadpole.settings import ProfileName


@dataclass(frozen=True)
class Wish:
    """What is looked for. ``model`` empty: the first that the server has."""

    base: str  # OPENAI_BASE_URL
    model: str = ""
    context: int = 65_536  # tokens
    seconds: float = 60.0  # for the probing of the context
    patience: float = 300.0  # for one answer
    key: str = ""
    memory: int = 0  # bytes here, of the GPUs or of the machine; 0: not known


async def examine(wish: Wish) -> AsyncIterator[Finding]:
    """Findings as they come. Raises ConfigError where there is no address to ask."""
    if not wish.base.startswith(("http://", "https://")):
        raise ConfigError(
            "no server to look at: set OPENAI_BASE_URL, for example to http://127.0.0.1:8080/v1"
        )
    host = urlsplit(wish.base).hostname or ""
    try:
        server, proxy = _reached(wish, host)
    except NoServer as error:
        yield _unreached(wish, host, error)
        return
    if proxy:
        yield proxy
        if not proxy.ok:
            return
    listed = ", ".join(server.models[:5]) + (", ..." if len(server.models) > 5 else "")
    more = {"kind": server.kind.value, "models": list(server.models)}
    yield Finding("server", True, f"{server.kind.value} at {host}; models: {listed or '-'}", more)
    model = wish.model or next(iter(server.models), "")
    found = _model(server, model)
    yield found
    if not found.ok:
        return
    chat = OpenAIChat(model, base_url=wish.base, api_key=wish.key, tries=2, silence=wish.patience)
    profile = make_profile(ProfileName.FULL, CallFormat.HERMES)
    who = Examinee(chat, model, server.kind, profile)
    try:
        async for finding in _by_doing(who, wish, server):
            yield finding
    except ModelError as error:
        yield Finding("answer", False, str(error), fix="look into the log of the server")
    yield _memory(wish, server, model, host)


async def _by_doing(who: Examinee, wish: Wish, server: Server) -> AsyncIterator[Finding]:
    for finding in await checks.speaks(who):
        yield finding
        if not finding.ok:
            return
    called = await checks.calls_a_tool(who)
    yield called
    if called.ok:
        yield await checks.calls_two_tools(who)
    yield await checks.reads_a_result(who)
    yield await _window(who, wish, server.window(who.model))


def _reached(wish: Wish, host: str) -> tuple[Server, Finding | None]:
    """The server, and a finding about proxies where they stand between. Raises NoServer."""
    name = _captured(host)
    if not name:
        return identify(wish.base, wish.key), None
    fix = advice(Fault.PROXY, ServerKind.OTHER, wish.model, host=host)
    try:
        server = identify(wish.base, wish.key)
    except NoServer as error:
        server = identify(wish.base, wish.key, proxies=False)
        detail = f"{name} sends requests for {host} to a proxy, which fails ({error})"
        return server, Finding("proxy", False, detail, fix=fix)
    return server, Finding("proxy", True, f"{name} takes requests for {host} along", fix=fix)


def _captured(host: str) -> str:
    """The variable that would send requests for a host on this machine or network to a proxy."""
    if not _near(host) or proxy_bypass(host):
        return ""
    proxies = getproxies()
    scheme = next((one for one in ("http", "https", "all") if proxies.get(one)), "")
    name = f"{scheme}_proxy"
    return (name if name in os.environ else name.upper()) if scheme else ""


def _near(host: str) -> bool:
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".local")


def _unreached(wish: Wish, host: str, error: NoServer) -> Finding:
    root = re.sub(r"/v1$", "", wish.base.rstrip("/"))
    fault = {0: Fault.UNREACHABLE, 401: Fault.KEY, 403: Fault.KEY}.get(error.status, Fault.ADDRESS)
    shown = re.sub(r"//[^/]*@", "//", root)
    fix = advice(fault, ServerKind.OTHER, wish.model, root=shown, host=host)
    if fault is Fault.ADDRESS and wish.base.rstrip("/").endswith("/v1"):
        fix = advice(Fault.UNREACHABLE, ServerKind.OTHER, wish.model)
    return Finding("server", False, f"{shown} cannot be asked: {error}", fix=fix)


def _model(server: Server, model: str) -> Finding:
    if not server.models:
        fix = advice(Fault.NO_MODEL, server.kind, model or "NAME")
        return Finding("model", False, "the server has no model", fix=fix)
    told = {model, f"{model}:latest"} & set(server.models)
    if told or server.kind is ServerKind.LLAMA_CPP:  # which serves its one under any name
        return Finding("model", True, model, {"model": model})
    near = difflib.get_close_matches(model, server.models, n=1, cutoff=0.3)
    nearest = near[0] if near else server.models[0]
    fix = advice(Fault.OTHER_MODEL, server.kind, model, nearest=nearest)
    return Finding("model", False, f"the server has no {model}", fix=fix)


async def _window(who: Examinee, wish: Wish, told: int | None) -> Finding:
    async def ask(prompt: str) -> int | None:
        reply = await who.ask([{"role": "user", "content": prompt}], 1)
        return reply.prompt_tokens

    try:
        found = await probe(ask, wish.context - 64, wish.seconds, told)
    except ModelError as error:
        fix = who.fix(Fault.WINDOW, context=wish.context, holds="N")
        return Finding("context", False, f"a long prompt fails: {error}", fix=fix)
    says = f"; the server says {told:,}" if told else ""
    more = {"holds": found.holds, "told": told, "ending": found.ending.name.lower()}
    near = told and abs(told - found.holds) <= told // 8
    holds = told if near or (told and found.ending is Ending.TIME) else found.holds
    short = {"context": wish.context, "holds": holds}
    if found.ending is Ending.UNCOUNTED:
        detail = f"cannot be measured, the server does not count tokens{says}"
        return Finding("context", True, detail, more, who.fix(Fault.NO_USAGE))
    if found.ending is Ending.HOLDS:
        return Finding("context", True, f"{wish.context:,} tokens are read{says}", more)
    if found.ending is Ending.TIME and not (told and told < wish.context):
        detail = f"at least {found.holds:,} tokens are read, {wish.context:,} would take longer"
        fix = f"tadpole doctor --seconds {_needed(wish, found.holds, found.rate)}"
        return Finding("context", True, f"{detail} than {wish.seconds:g} s{says}", more, fix)
    if found.ending is Ending.TRUNCATES:
        detail = f"longer prompts than {found.holds:,} tokens are silently cut{says}"
        return Finding("context", False, detail, more, who.fix(Fault.TRUNCATES, **short))
    detail = f"{holds:,} tokens are read, not {wish.context:,}{says}"
    return Finding("context", False, detail, more, who.fix(Fault.WINDOW, **short))


def _needed(wish: Wish, holds: int, rate: float) -> int:
    """Seconds that the whole probing would take, generously."""
    return int(wish.seconds + 2 * (wish.context - holds) / max(rate, 1.0)) + 1


def _memory(wish: Wish, server: Server, model: str, host: str) -> Finding:
    parameters = server.parameters(model)
    if parameters is None:
        return Finding("needs", True, "not known: neither server nor name says how large it is")
    need = footprint(parameters, wish.context)
    detail = f"for {parameters / 1e9:.3g}e9 weights at {wish.context:,} tokens: {need.told()}"
    more = {"weights": need.weights, "cache": need.cache, "memory": wish.memory}
    served = server.weight_bytes(model)
    least = need.least() if served is None else served + min(need.cache.values())
    here = _near(host) and wish.memory
    if here:
        detail += f"; here are {wish.memory / 2**30:.1f} GiB"
    short = here and least > wish.memory
    fix = advice(Fault.MEMORY, server.kind, model) if short else ""
    return Finding("needs", True, detail, more, fix)
