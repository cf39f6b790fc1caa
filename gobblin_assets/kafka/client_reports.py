"""The reports of a Kafka client: its errors as families, by the error's name in librdkafka, and the ids of topics.

No message holds a secret.
"""

import base64
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_CHARACTERS_MAX: Final = 400
_REASONS_MAX: Final = 3
_SEEN_MAX: Final = 50

GONE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})
"""What a consumer reports of a topic that was deleted."""

PASSING: Final = frozenset({
    "_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_RESOLVE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
    "_MAX_POLL_EXCEEDED", "REQUEST_TIMED_OUT", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "_WAIT_COORD", "_STATE",
})  # fmt: skip
"""What a consumer reports, and then goes on by itself."""

_LOGIN: Final = frozenset({
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE",
})  # fmt: skip
_SETTINGS: Final = frozenset({"_INVALID_ARG", "_CRIT_SYS_RESOURCE", "_UNSUPPORTED_FEATURE"})
_RIGHTS: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"})
_UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID", "TOPIC_EXCEPTION"})
_SILENCE: Final = frozenset({
    "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_SSL", "_MSG_TIMED_OUT",
    "REQUEST_TIMED_OUT",
})  # fmt: skip

# A certificate does not become valid by waiting; a handshake that broke off may be a broker's restart.
_CERTIFICATE_REFUSED: Final = "verify failed"
_WITHOUT_REASON: Final = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT"})
_TIMING: Final = re.compile(r" \(after \d+ms in state [^)]*\)")
_LEADERLESS: Final = frozenset({"LEADER_NOT_AVAILABLE", "_LEADER_NOT_AVAILABLE", "_WAIT_COORD"})


@dataclass(frozen=True, slots=True)
class ClientFailure:
    """``name`` is the error's code as a word, such as ``_TIMED_OUT``; ``text`` is the client's message."""

    name: str
    text: str

    @property
    def is_final(self) -> bool:
        """Waiting longer would not help, though the client goes on trying."""
        return self.name in _LOGIN or (self.name == "_SSL" and _CERTIFICATE_REFUSED in self.text)

    @property
    def is_silence(self) -> bool:
        """Whether no broker answered, as far as the client knows."""
        return self.name in _SILENCE


def client_failure(error: "KafkaError") -> ClientFailure:
    return ClientFailure(error.name(), error.str())


class SeenFailures(list[ClientFailure]):
    """The first failures that a client's connections reported: they report as long as nobody answers."""

    def note(self, error: "KafkaError") -> None:
        if len(self) < _SEEN_MAX:
            self.append(client_failure(error))

    def find_final(self) -> ClientFailure | None:
        return next((each for each in self if each.is_final), None)


def judge_client(
    failure: ClientFailure, connection: KafkaConnection, *, action: str, seen: Sequence[ClientFailure] = ()
) -> GobblinError:
    """The family of a call that failed; ``action`` completes "can't …".

    ``seen`` is what the connections reported meanwhile; it is the cause of a call that timed out.
    """
    final = next((each for each in seen if each.is_final), None)
    cause = final or failure
    said = _clean(connection, cause.text)
    if cause.name in _LOGIN:
        return connection.reject(
            "password",
            f"{connection.bootstrap_servers} refuses the login of {connection.username!r}: {said}",
            f"Give the right username and password, and the sasl_mechanism ({connection.sasl_mechanism}) that "
            "the brokers use.",
        )
    if cause.is_final:
        return connection.reject(
            "ssl_ca_file",
            f"the certificate of {connection.bootstrap_servers} is not trusted: {said}",
            "Give the PEM file of the authority that signed it, and a server name that stands in the certificate.",
        )
    if cause.name in _SETTINGS:
        return connection.reject("options", f"the client refuses its settings: {said}", "Correct what it names.")
    if cause.name in _RIGHTS:
        return connection.reject(
            "username", f"may not {action}: {said}", "Grant this user Describe and Read on the topics."
        )
    if cause.name in _SILENCE:
        return _no_answer(connection, action, seen or (failure,))
    return RetryableError(f"can't {action} ({cause.name}): {said}")


def judge_topic(failure: ClientFailure, connection: KafkaConnection, topic: str) -> GobblinError:
    """The error that ends the planning of one topic, while others go on."""
    if failure.name in _UNKNOWN:
        return RejectedError(
            f"there is no topic {topic!r} on {connection.bootstrap_servers}",
            field="datasets.topic",
            hint="Correct the dataset's topic, or make the topic; watermarks stay where they are.",
            topic=topic,
        )
    return judge_client(failure, connection, action=f"describe the topic {topic!r}")


def explain_partition(failure: ClientFailure, connection: KafkaConnection) -> str:
    """Why a partition's offsets are not known."""
    if failure.name in _LEADERLESS:
        return "no broker leads the partition now (LEADER_NOT_AVAILABLE)"
    return f"{_clean(connection, failure.text)} ({failure.name})"


def _no_answer(connection: KafkaConnection, action: str, seen: Sequence[ClientFailure]) -> RetryableError:
    reasons = {_clean(connection, each.text): None for each in seen if each.name not in _WITHOUT_REASON}
    said = "; ".join(list(reasons)[:_REASONS_MAX]) or "connections were accepted, and then closed or left unanswered"
    return RetryableError(
        f"can't {action}: no broker of {connection.bootstrap_servers} answered in {connection.timeout_s:g} s: {said}",
        passes=True,
        hint=f"Check connections[{connection.name}].bootstrap_servers and security_protocol, and that they run.",
    )


def _clean(connection: KafkaConnection, text: str) -> str:
    return " ".join(_TIMING.sub("", connection.scrub(text)).split())[:_CHARACTERS_MAX]


UNKNOWN_ID: Final = str(uuid.UUID(int=0))
"""What brokers before 2.8 say of each topic."""


def read_topic_id(said: object) -> str:
    """The UUID as text of what the client says: the 16 bytes in base64, without its padding."""
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{said}==")))
