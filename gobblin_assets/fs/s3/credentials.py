"""Keys for signatures: those that were given, or those of AWS's own chain (files, roles of machines and containers)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.s3.s3_settings import DEFAULT_REGION, PREFIX, S3Settings, is_key


@dataclass(frozen=True, slots=True)
class Credentials:
    """``session_token``: of keys that were lent for a time."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreAccount:
    """Who asks, and in which region. ``credentials`` gives keys that are valid now."""

    region: str
    credentials: Callable[[], Credentials]


def open_store_account(settings: S3Settings) -> StoreAccount:
    """RejectedError where neither the settings nor AWS's chain have keys."""
    if settings.access_key_id is not None and settings.secret_access_key is not None:
        given = Credentials(settings.access_key_id, settings.secret_access_key, settings.session_token)
        return StoreAccount(settings.region or DEFAULT_REGION, lambda: given)
    return _ask_aws(settings)


def find_region(settings: S3Settings) -> str:
    """The region that signatures name. Nobody is asked for keys."""
    if settings.region is not None or settings.access_key_id is not None:
        return settings.region or DEFAULT_REGION
    session, failures = _open_aws()
    try:
        return str(session.get_config_variable("region") or DEFAULT_REGION)
    except failures as error:
        raise _unusable(error) from None


def _open_aws() -> tuple[Any, type[Exception]]:
    """AWS's own chain, and the root of its errors."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415  its import takes longer than most commands
    from botocore.session import get_session  # noqa: PLC0415  the same

    return get_session(), BotoCoreError


def _ask_aws(settings: S3Settings) -> StoreAccount:
    session, failures = _open_aws()
    try:
        found = session.get_credentials()
        region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
    except failures as error:
        raise _unusable(error) from None
    if found is None:
        raise RejectedError(
            "expected keys for S3, found none",
            field=f"{PREFIX}ACCESS_KEY_ID",
            hint=f"Set it with {PREFIX}SECRET_ACCESS_KEY, or let AWS's own chain have keys (AWS_PROFILE, a role).",
        )

    def current() -> Credentials:
        try:
            keys = found.get_frozen_credentials()
        except failures as error:
            raise RetryableError(f"AWS gives no new keys: {type(error).__name__}") from None
        texts = [keys.access_key, keys.secret_key, keys.token]
        stripped = [str(text or "").strip() or None for text in texts]
        if not all(map(is_key, stripped)):
            raise RejectedError(
                "a key of AWS's own chain has a character that no key has",
                field=f"{PREFIX}ACCESS_KEY_ID",
                hint="Correct the AWS_… variables and files, or set keys here.",
            )
        access_key, secret_key, token = stripped
        return Credentials(access_key or "", secret_key or "", token)

    return StoreAccount(str(region), current)


def _unusable(error: Exception) -> RejectedError:
    """Without the text, which may repeat a file's content."""
    return RejectedError(
        f"AWS's own chain of credentials can't be used: {type(error).__name__}",
        field=f"{PREFIX}ACCESS_KEY_ID",
        hint="Correct the AWS_… variables and files, or set keys here.",
    )
