"""Shows a URI that a person wrote, for errors: a login, a query and a fragment may hold secrets."""

import re
from typing import Final

_START: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?/*")
_PATH: Final = re.compile(r"/(?!/)")
_PARAMETERS: Final = re.compile(r"[?#]")


def show_uri(uri: str) -> str:
    """The URI without what may be a secret; ``…`` stands for it. An absolute path keeps all but a query."""
    if _PATH.match(uri) and "://" not in uri:
        path, mark, query = uri.partition("?")
        return f"{path}{mark}{'…' if query else ''}"
    start = _START.match(uri)
    begin = start[0] if start else ""
    rest = uri[len(begin) :]
    found = _PARAMETERS.search(rest)
    end = found.start() if found else len(rest)
    if "@" in rest[end:]:
        # A login with such a character, or parameters with an @: nobody can tell.
        return f"{begin}…"
    login, at, place = rest[:end].rpartition("@")
    return f"{begin}{'…@' if login else at}{place}{rest[end : end + 1]}{'…' if rest[end + 1 :] else ''}"
