"""What the model has seen of files and may still hold in its context (this session)."""

# Real path -> texts of the file.
texts: "dict[str, list[str]]" = {}
SEEN_CHARS = 4000000  # of all of them: a box keeps little while it waits


def remember(real: str, text: str) -> None:
    """Keep a text of a file, the last few of each."""
    kept = [version for version in texts.pop(real, []) if version != text]
    texts[real] = [*kept, text][-4:] if len(text) < 1000000 else kept
    while sum(len(text) for versions in texts.values() for text in versions) > SEEN_CHARS:
        del texts[next(iter(texts))]  # what was looked at least lately
