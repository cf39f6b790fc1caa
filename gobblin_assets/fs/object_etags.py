"""ETags that follow from the bytes, as most stores make them: an MD5 of a part, and of the parts' own for an object.

Stores that encrypt by keys of their own have others, which may look the same; a rehearsal finds out
(``Ability.FORESEEN_ETAGS``).
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from gobblin_assets.fs.objects import UploadPart

_MD5: Final = re.compile(r"[0-9a-f]{32}")


def expected_etag(parts: Sequence[UploadPart]) -> str | None:
    """The ETag of the object that these parts become; None where those of the parts look otherwise."""
    if not all(_MD5.fullmatch(each.etag) for each in parts):
        return None
    digests = b"".join(bytes.fromhex(each.etag) for each in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
