"""A client of a Confluent-compatible schema registry: schemas by id, and the versions of a subject.

It uses urllib3, which Dagster's own HTTP client brings along: urllib3 keeps connections, bounds every wait, and is
typed. A call waits at most ``TRIES_MAX`` times for an answer. A registry that did not answer is not asked again for
``DOWN_FOR_S``, since a run over a thousand topics would otherwise wait for each of them.
"""

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import Retry, Timeout

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError

CONNECT_WAIT_S: Final = 3.0
ANSWER_WAIT_S: Final = 5.0
TRIES_MAX: Final = 3
BACK_OFF_S: Final = 0.2
"""The pause before the second retry, doubled after it; the first retry follows at once."""

DOWN_FOR_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 16 << 20
SCHEMAS_CACHED_MAX: Final = 10_000
REFERENCES_MAX: Final = 100
"""Schemas that one schema refers to, directly or through others."""

_RETRIED_STATUS: Final = (408, 429, 500, 502, 503, 504)
_TYPES: Final = "application/vnd.schemaregistry.v1+json, application/json"
_SUBJECT_UNKNOWN: Final = 40401

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RegistryConnection:
    """A connection to a registry: basic authentication by ``user`` and ``password``, or a bearer ``token``.

    ``ca_file`` holds the certificates to trust, if the machine does not know the registry's own. Each of the
    ``TRIES_MAX`` tries waits ``answer_wait_s`` at most.
    RejectedError for a text that is no URL, a URL with credentials, and both kinds of authentication at once.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    answer_wait_s: float = ANSWER_WAIT_S
    name: str = "registry"

    def __post_init__(self) -> None:
        # The first two messages don't show the URL, since it may hold a secret.
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise RejectedError(
                "the URL holds credentials or parameters",
                field=f"{self.where}.url",
                hint="Give user and password, or token, beside it: URLs end up in logs.",
            )
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise RejectedError(
                "expected the URL of a schema registry, found something else",
                field=f"{self.where}.url",
                hint="Write it like https://registry.example:8081.",
            )
        if self.token is not None and self.user is not None:
            raise RejectedError(
                "both a user and a token are given", field=f"{self.where}.token", hint="Leave one of them out."
            )

    @property
    def where(self) -> str:
        return f"connections[{self.name}]"

    def headers(self) -> dict[str, str]:
        """Secrets included: pass them on, never print them."""
        if self.token is not None:
            return {"authorization": f"Bearer {self.token}"}
        if self.user is not None:
            credentials = f"{self.user}:{self.password or ''}".encode()
            return {"authorization": f"Basic {b64encode(credentials).decode()}"}
        return {}


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one needs.

    ``name`` is what the referring schema calls it: for Avro, the full name of a type.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    ``type`` is AVRO, PROTOBUF or JSON; ``text`` the schema as it was registered.
    """

    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    subject: str
    version: int
    id: int
    schema: RegisteredSchema


class SchemaRegistry:
    """One registry, for calls from any thread. A schema's text under its id never changes there, so it is kept.

    Raises:
        RetryableError: no answer within the bounds.
        RejectedError: an unknown subject, credentials that are not accepted, or an answer that is not a registry's.

    """

    def __init__(self, connection: RegistryConnection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.connection = connection
        self._clock = clock
        self._url = connection.url.rstrip("/")
        self._pool = urllib3.PoolManager(
            timeout=Timeout(connect=min(CONNECT_WAIT_S, connection.answer_wait_s), read=connection.answer_wait_s),
            retries=Retry(
                total=TRIES_MAX - 1,
                status_forcelist=_RETRIED_STATUS,
                allowed_methods=["GET"],
                backoff_factor=BACK_OFF_S,
                # Credentials never follow a redirect, and a Retry-After may ask for hours.
                redirect=0,
                raise_on_redirect=False,
                raise_on_status=False,
                respect_retry_after_header=False,
            ),
            ca_certs=connection.ca_file,
        )
        self._lock = threading.Lock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], SubjectVersion] = {}
        self._down: tuple[float, str] | None = None

    def find_schema(self, schema_id: int) -> RegisteredSchema | None:
        """None: the registry has no schema of this id."""
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        subject = f"schema {schema_id}"
        status, answer = self._get(f"/schemas/ids/{schema_id}", subject)
        if status == 404:
            return None
        found = self._parse(lambda: _parse_schema(answer), subject)
        self._keep(self._schemas, schema_id, found)
        return found

    def list_versions(self, subject: str) -> tuple[int, ...]:
        """The subject's versions, oldest first."""
        status, answer = self._get(f"/subjects/{quote(subject, safe='')}/versions", f"subject {subject!r}")
        if status == 404:
            raise self._refuse_unknown(subject, answer)
        return self._parse(lambda: tuple(sorted(int(number) for number in answer)), f"subject {subject!r}")

    def get_version(self, subject: str, version: int) -> SubjectVersion:
        known = self._versions.get((subject, version))
        if known is not None:
            return known
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        status, answer = self._get(path, f"subject {subject!r}")
        if status == 404:
            raise self._refuse_unknown(subject, answer, version)
        found = self._parse(
            lambda: SubjectVersion(subject, int(answer["version"]), int(answer["id"]), _parse_schema(answer)),
            f"subject {subject!r}",
        )
        self._keep(self._versions, (subject, found.version), found)
        self._keep(self._schemas, found.id, found.schema)
        return found

    def get_references(self, schema: RegisteredSchema) -> Mapping[str, RegisteredSchema]:
        """All schemas that this one refers to, directly or through others, by name."""
        found: dict[str, RegisteredSchema] = {}
        left = list(schema.references)
        while left:
            reference = left.pop()
            if reference.name in found:
                continue
            if len(found) == REFERENCES_MAX:
                raise RejectedError(
                    f"a schema of {self._url} refers to more than {REFERENCES_MAX} others, at last {reference.name!r}",
                    field=self.connection.where,
                    hint="Give the reader's schema in the job as `schema`, and register the writer's in one piece.",
                )
            found[reference.name] = self.get_version(reference.subject, reference.version).schema
            left += found[reference.name].references
        return found

    def _keep(self, cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
        with self._lock:
            if len(cache) >= SCHEMAS_CACHED_MAX:
                cache.clear()
            cache[key] = value

    def _get(self, path: str, subject: str) -> tuple[int, Any]:
        """The status, 200 or 404, and the registry's answer."""
        down = self._down
        if down is not None and self._clock() < down[0]:
            raise self._unreachable(subject, down[1])
        try:
            response = self._pool.request(
                "GET", self._url + path, headers={"accept": _TYPES, **self.connection.headers()}, preload_content=False
            )
            try:
                content = response.read(ANSWER_BYTES_MAX + 1)
            finally:
                response.drain_conn()
                response.release_conn()
        except HTTPError as error:
            raise self._no_answer(error, subject) from error
        if response.status in _RETRIED_STATUS:
            raise self._mark_down(subject, f"it answered {response.status} {TRIES_MAX} times")
        self._down = None
        if response.status in {401, 403}:
            raise RejectedError(
                f"the schema registry at {self._url} refused {subject}: {response.status}",
                field=f"{self.connection.where}.{'token' if self.connection.token else 'user'}",
                hint="Give credentials that may read this subject.",
            )
        if len(content) > ANSWER_BYTES_MAX:
            raise self._no_registry(subject, f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._no_registry(subject, f"status {response.status} without JSON") from error
        is_error = isinstance(answer, dict) and "error_code" in answer
        if response.status != 200 and not (response.status == 404 and is_error):
            raise self._no_registry(subject, f"status {response.status}")
        return response.status, answer

    def _no_answer(self, error: HTTPError, subject: str) -> GobblinError:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, SSLError):
            return RejectedError(
                f"the schema registry at {self._url} can't be trusted: {type(cause).__name__}",
                field=f"{self.connection.where}.ca_file",
                hint="Give the certificates that signed the registry's own.",
            )
        said = str(cause).rpartition(": ")[2] or type(cause).__name__
        return self._mark_down(subject, f"{TRIES_MAX} tries, at last: {said}")

    def _mark_down(self, subject: str, said: str) -> RetryableError:
        self._down = (self._clock() + DOWN_FOR_S, said)
        return self._unreachable(subject, said)

    def _unreachable(self, subject: str, said: str) -> RetryableError:
        return RetryableError(
            f"the schema registry at {self._url} does not answer for {subject} ({said})",
            hint=f"Check {self.connection.where}.url, and that it runs.",
            url=self._url,
        )

    def _no_registry(self, subject: str, said: str) -> RejectedError:
        return RejectedError(
            f"expected a schema registry at {self._url}, found {said} (asked for {subject})",
            field=f"{self.connection.where}.url",
            hint="Write the URL below which /subjects is.",
        )

    def _refuse_unknown(self, subject: str, answer: Any, version: int | None = None) -> RejectedError:
        of_version = version is not None and answer.get("error_code") != _SUBJECT_UNKNOWN
        missing = f"version {version} of subject {subject!r}" if of_version else f"subject {subject!r}"
        return RejectedError(
            f"the schema registry at {self._url} has no {missing}",
            field="subject",
            hint="Correct the subject in the decoder (default: <topic>-value, <topic>-key), or register its schema.",
            subject=subject,
        )

    def _parse(self, parse: Callable[[], _Value], subject: str) -> _Value:
        try:
            return parse()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._no_registry(subject, "an answer without the expected fields") from error


def _parse_schema(answer: Any) -> RegisteredSchema:
    references = tuple(
        SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in answer.get("references") or ()
    )
    text = answer["schema"]
    if not isinstance(text, str):
        raise TypeError("schema")
    return RegisteredSchema(str(answer.get("schemaType") or "AVRO"), text, references)
