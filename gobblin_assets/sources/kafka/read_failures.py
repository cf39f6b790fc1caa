"""Spark's errors while it reads a topic, as families: told by their words, since all are one Java error's text."""

import re
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spark.errors import family_of_spark

_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?[\w.$]+(?:Exception|Error): .*$", re.MULTILINE)
_SAID_MAX: Final = 400

_CONNECTOR: Final = re.compile(r"(?i)failed to find (the )?data source: kafka|DATA_SOURCE_NOT_FOUND.*kafka")
_OF_KAFKA: Final = re.compile(r"org\.apache\.kafka|kafka010|KAFKA_DATA_LOSS|data may have been lost")
_LOST: Final = re.compile(
    r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost|Cannot fetch (offset|record)s? .*(out of range|deleted)"
)
_GONE: Final = re.compile(r"UnknownTopicOrPartition|UnknownTopicId|InvalidTopicException")
_LOGIN: Final = re.compile(r"SaslAuthentication|AuthenticationException|LoginException")
_RIGHTS: Final = re.compile(r"AuthorizationException")


def judge_read(error: Exception, connection: KafkaConnection, urn: DatasetUrn, topic: str) -> GobblinError:
    """The family of a failed read of the topic, or of a failed write of its records; without a secret."""
    if isinstance(error, GobblinError):
        return error
    text = connection.scrub(str(error))
    if _CONNECTOR.search(text):
        return RejectedError(
            "Spark has no Kafka connector",
            field="spark.capabilities",
            hint="Add kafka to the Spark resource's capabilities, or put the connector's jars into the folder `jars`.",
        )
    if not _OF_KAFKA.search(text):
        if connection.scrub(str(error)) != str(error):
            return RetryableError(f"Spark failed: {_summarize(text)}")
        return family_of_spark(error, action="read the topic, or write what it read")
    said = _summarize(text)
    if _LOST.search(text):
        return RetryableError(
            f"{urn}: records of {topic} were deleted between planning and reading: {said}",
            hint="Nothing of it was published. The next run plans anew, and reset_on_out_of_range says what it does.",
        )
    if _GONE.search(text):
        return RetryableError(
            f"{urn}: the topic {topic} was deleted while it was read: {said}",
            hint="Nothing of it was published; watermarks stay where they are.",
        )
    if _LOGIN.search(text):
        return connection.reject("password", f"the brokers refuse the login: {said}", "Give the right one.")
    if _RIGHTS.search(text):
        return connection.reject("username", f"may not read {topic}: {said}", "Grant this user Read on it.")
    return RetryableError(f"{urn}: reading {topic} failed: {said}", hint="The offsets are read again.")


def _summarize(text: str) -> str:
    """The innermost cause: what Java prints last."""
    causes = [line.strip().removeprefix("Caused by: ").removeprefix(": ") for line in _CAUSE.findall(text)]
    said = causes[-1] if causes else text.strip().splitlines()[0] if text.strip() else "no reason given"
    return " ".join(said.split())[:_SAID_MAX]
