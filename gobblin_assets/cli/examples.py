"""Examples that a command's help shows."""


def example(words: str) -> str:
    """The epilog of a command: ``words`` are what follows ``gobblin-assets``. A test parses all of them."""
    # click folds no lines of a paragraph that begins with \b.
    return f"\b\nExample:\n  gobblin-assets {words}"
