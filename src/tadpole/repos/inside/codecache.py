"""What Python and pytest compile, kept by content: most files of two test runs are the same.

Runs inside the box: standard library and pytest only.
"""

import contextlib
import hashlib
import importlib.machinery
import marshal
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

import _pytest.assertion.rewrite


def keep_code(folder: str) -> None:
    """Compile each file content once: what is compiled is kept below ``folder``."""
    os.makedirs(folder, exist_ok=True)
    loader: Any = importlib.machinery.SourceFileLoader
    rewriting: Any = _pytest.assertion.rewrite
    compiled, rewritten = loader.source_to_code, rewriting._rewrite_test

    def kept(kind: str, path: str, data: bytes, make: Callable[[], CodeType]) -> CodeType:
        name = hashlib.sha256(b"\0".join((kind.encode(), os.fsencode(path), data))).hexdigest()
        place = os.path.join(folder, name)
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            with open(place, "rb") as file:
                code = marshal.load(file)
            if isinstance(code, CodeType):
                return code
        code = make()
        beside = f"{place}.{os.getpid()}"
        with contextlib.suppress(OSError, ValueError):
            with open(beside, "wb") as file:
                marshal.dump(code, file)
            os.replace(beside, place)
        return code

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        if not isinstance(data, bytes) or options.get("_optimization", -1) != -1:
            return compiled(self, data, path, **options)
        return kept("module", str(path), data, lambda: compiled(self, data, path))

    def rewrite(path: Any, config: Any) -> Any:
        hook = bool(config.getini("enable_assertion_pass_hook"))
        data = path.read_bytes()
        code = kept(f"test {hook}", str(path), data, lambda: rewritten(path, config)[1])
        return os.stat(path), code

    loader.source_to_code = source_to_code
    rewriting._rewrite_test = rewrite
