"""The ids of topics: a topic that was deleted and made again has another one."""

import base64
import uuid
from typing import Final

UNKNOWN_ID: Final = str(uuid.UUID(int=0))
"""What brokers before 2.8 say of each topic."""


def read_topic_id(said: object) -> str:
    """The UUID as text of what the client says: the 16 bytes in base64, without its padding."""
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{said}==")))
