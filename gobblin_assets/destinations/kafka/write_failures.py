"""Failures of writing to topics, as families of errors. No message holds a secret, or values of rows."""

import logging
from collections.abc import Sequence
from typing import Final

from gobblin_assets.destinations.kafka.topic_batches import TRANSACTIONAL_PREFIX
from gobblin_assets.errors import FencedError, GobblinError, OutcomeUnknownError, RejectedError
from gobblin_assets.kafka.client_reports import ClientFailure, judge_client
from gobblin_assets.kafka.connection import KafkaConnection

_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_AWAY: Final = frozenset({
    "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "_WAIT_COORD", "_PURGE_QUEUE", "_PURGE_INFLIGHT",
})  # fmt: skip
"""What passes when brokers are back. Nobody has to unblock anything."""
_RIGHTS: Final = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
})  # fmt: skip
_TOO_OLD: Final = frozenset({"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"})

_TEXT_MAX: Final = 400

QUIET: Final = logging.getLogger("gobblin_assets.kafka")
"""For clients that would write to stderr what they also report: a fatal error is written at any level of logs."""
QUIET.disabled = True


class TooLargeError(RejectedError):
    """A record, or the batch that it was sent in, is larger than its topic takes. ``is_alone``: it was no batch."""

    is_alone = False


def judge_write(
    failure: ClientFailure, connection: KafkaConnection, *, action: str, seen: Sequence[ClientFailure] = ()
) -> GobblinError:
    """RejectedError for what a person can correct, FencedError where another process has the lane.

    OutcomeUnknownError for brokers that are away: that is not counted as a failed try, however long it lasts.
    """
    said = connection.scrub(failure.text)[:_TEXT_MAX]
    if failure.name in _FENCED:
        # By a process that took the lane over, or by the brokers, for which a transaction took too long.
        return FencedError(f"can't {action}: another producer has the lane's transactional id now")
    if failure.name in _TOO_LARGE:
        return TooLargeError(
            f"a record is larger than its topic takes: {said}",
            field="into",
            hint="Raise max.message.bytes of the topic, then resume the publication; or have a converter cut the "
            "values, and abandon it.",
        )
    if failure.name in _RIGHTS:
        return connection.reject(
            "username",
            f"may not {action}: {said}",
            "Grant this user Read, Write, Describe and DescribeConfigs on the topics and on the topic of marks, Create "
            f"where they are to be made, and Write and Describe on transactional ids with the prefix "
            f"{TRANSACTIONAL_PREFIX}.",
        )
    if failure.name in _TOO_OLD:
        return connection.reject(
            "bootstrap_servers",
            f"the brokers can't {action}: {said}",
            "Name a cluster of Kafka 2.5 or newer: only transactions say whether a publication is there.",
        )
    if failure.name == "INVALID_TRANSACTION_TIMEOUT":
        return RejectedError(
            "the publication needs a longer transaction than the brokers allow",
            field="into.connection",
            hint="Raise transaction.max.timeout.ms of the brokers (15 minutes by default), or let sink.roll cut the "
            "publications smaller.",
        )
    if failure.name in _AWAY or failure.is_silence or any(each.is_silence for each in seen):
        cause = judge_client(failure, connection, action=action, seen=seen)
        if isinstance(cause, RejectedError):
            return cause
        return OutcomeUnknownError(
            f"the brokers of the connection {connection.name!r} are out of reach, and only they know what they have: "
            f"{cause.message}",
            hint="They are asked again.",
        )
    return judge_client(failure, connection, action=action, seen=seen)
