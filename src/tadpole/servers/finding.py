"""One thing that was looked at."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """``ok``: an episode can run as far as this goes. ``fix``: what to type or change; with ``ok``
    it would only be better. ``more`` is for machines."""

    name: str
    ok: bool
    detail: str
    more: dict[str, Any] = field(default_factory=dict)
    fix: str = ""

    @property
    def mark(self) -> str:
        """Three letters for a person."""
        return "BAD" if not self.ok else "tip" if self.fix else "ok "
