"""What of a git repository's address may be kept and shown: not who asks, nor by what secret.

Guards against: passwords and tokens in snapshots, tasks, tables, configurations, messages and
whatever git says. They serve where they were typed, and are typed again where they are needed
again. Does not guard against: a secret in the path or the query of an address.
"""

import re

# Over HTTP the name alone may be a token. Elsewhere (ssh) it is part of where a repository lies.
_WEB = re.compile(r"(\bhttps?://)[^/\s]*@")
_OTHER = re.compile(r"(\b[a-z+]+://[^/\s:@]+):[^/\s]*@")


def shown(text: str) -> str:
    """An address, or any text that has some in it, without secrets."""
    return _OTHER.sub(r"\1@", _WEB.sub(r"\1", text))
