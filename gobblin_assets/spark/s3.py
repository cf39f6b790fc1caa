"""Spark's way to objects: Hadoop's S3A, set up by the variables that the product's own client reads.

No secret is in Spark's configuration. Keys that ``GOBBLIN_S3_…`` gives are named there as references, which Hadoop
resolves from the environment of the process that opens a store: the driver, and each executor. Without them, AWS's own
chain of Java gives keys, as ``fs.s3.credentials`` takes them from AWS's chain of Python.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.s3.credentials import find_region
from gobblin_assets.fs.s3.s3_settings import PREFIX, S3Settings, read_s3_settings

S3_CAPABILITY: Final = "s3"

S3_COORDINATES: Final = (
    # Of the Hadoop that PySpark has.
    "org.apache.hadoop:hadoop-aws:3.4.1",
    # What it uses of AWS's SDK, in the minor line that it was built with.
    "software.amazon.awssdk:s3:2.24.12",
    "software.amazon.awssdk:s3-transfer-manager:2.24.12",
    "software.amazon.awssdk:sts:2.24.12",
)

S3_UNNEEDED: Final = ",".join(
    (
        # The whole SDK in one jar, which Hadoop's connector asks for.
        "software.amazon.awssdk:bundle",
        # Spark has a newer Netty, for its own RPC.
        *(
            f"io.netty:netty-{name}"
            for name in (
                *("buffer", "codec", "codec-http", "codec-http2", "common", "handler", "resolver", "transport"),
                *("transport-classes-epoll", "transport-native-unix-common"),
            )
        ),
    )
)
"""What its coordinates ask for besides, as group:artifact with commas between them."""

CALL_TRIES_MAX: Final = 3
"""Of one request, by the client itself."""

READ_TRIES_MAX: Final = 2
"""Further tries of a read or a look, by Hadoop: Spark tries a task four times besides."""

CONNECTIONS_MAX: Final = 256
"""To one store, of one process. Each open file keeps one, and an executor reads a file for each of its cores."""

# As ``fs.s3.client`` has them.
_CONNECT_WAIT: Final = "5s"
_ANSWER_WAIT: Final = "60s"

_S3A: Final = "spark.hadoop.fs.s3a."
_GIVEN_KEYS: Final[Mapping[str, str]] = {
    "access.key": f"${{env.{PREFIX}ACCESS_KEY_ID:-}}",
    "secret.key": f"${{env.{PREFIX}SECRET_ACCESS_KEY:-}}",
    "session.token": f"${{env.{PREFIX}SESSION_TOKEN:-}}",
}
# A key that a user's configuration has, for all buckets or for one, is found by the first two.
_KEYS_OF_CONFIGURATION: Final = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
)
_AWS_CHAIN: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_USERS_KEYS: Final = ("access.key", "secret.key", "session.token", "aws.credentials.provider")
_TRUST_STORE: Final = "-Djavax.net.ssl.trustStore="
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_VARIABLES: Final = (PREFIX, "AWS_")


def plan_s3_conf(environment: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration for URIs ``s3://…``. The user's own ``conf`` has to be laid over it.

    RejectedError names the variable that can't be used.
    """
    settings = read_s3_settings(environment)
    if settings.ca_file is not None and _TRUST_STORE not in conf.get(_JAVA_OPTIONS, ""):
        raise RejectedError(
            "Java can't read these certificates",
            field=f"{PREFIX}CA_FILE",
            hint="Import them into a copy of Java's trust store (keytool -importcert), and name that in Spark's "
            f"configuration, for executors too: {_JAVA_OPTIONS}={_TRUST_STORE}… and its trustStorePassword.",
        )
    planned = {
        "endpoint.region": find_region(settings),
        "attempts.maximum": str(CALL_TRIES_MAX),
        "retry.limit": str(READ_TRIES_MAX),
        "retry.throttle.limit": str(READ_TRIES_MAX),
        "connection.establish.timeout": _CONNECT_WAIT,
        "connection.timeout": _ANSWER_WAIT,
        "connection.maximum": str(CONNECTIONS_MAX),
        **_plan_place(settings),
        **_plan_keys(settings, conf),
    }
    return {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        **{_S3A + name: value for name, value in planned.items()},
    }


def mark_environment(environment: Mapping[str, str], key: str) -> str:
    """A mark of the variables that say how stores are reached, and with which keys. Equal values have equal marks.

    Nobody without ``key`` can find out from the mark whether a value was guessed rightly.
    """
    found = sorted((name, value) for name, value in environment.items() if name.startswith(_VARIABLES))
    return hmac.new(key.encode(), json.dumps(found).encode(), hashlib.sha256).hexdigest()


def _plan_place(settings: S3Settings) -> dict[str, str]:
    """The place, as ``fs.s3.requests.find_target`` finds it: another store has its buckets in the path."""
    if settings.endpoint_url is None:
        return {}
    return {"endpoint": settings.endpoint_url, "path.style.access": "true"}


def _plan_keys(settings: S3Settings, conf: Mapping[str, str]) -> dict[str, str]:
    """Nothing where the user's own configuration has keys for all buckets: Hadoop's defaults then find them."""
    if any(_S3A + name in conf for name in _USERS_KEYS):
        return {}
    if settings.access_key_id is None:
        return {"aws.credentials.provider": ",".join((*_KEYS_OF_CONFIGURATION, _AWS_CHAIN))}
    # Without AWS's chain: a role of the machine must never stand in for keys that an executor lacks.
    return {**_GIVEN_KEYS, "aws.credentials.provider": ",".join(_KEYS_OF_CONFIGURATION)}
