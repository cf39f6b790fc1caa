"""Numbers in sentences for people."""


def count_of(count: int, one: str, many: str) -> str:
    """Such as "1 file" and "2 files"."""
    return f"{count:,} {one if count == 1 else many}"
