"""Rights: which user may do what with which flows. Every decision and every query of flows goes through here.

Rules stand in a file. One that denies wins over those that allow, and what no rule allows is denied. A rule names
flows by a pattern, such as ``sales/orders*``: the group, and the name or the begin of names. Lists are filtered by the
database: ``FlowScope`` is what a query filters by.
"""

import datetime as dt
import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, ValidationError

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.spec.spec_errors import refuse
from gobblin_assets.spec.spec_model import SpecModel
from gobblin_assets.spec.yaml_files import read_yaml_file

_ALL: Final = "*"
_USER: Final = "user:"
_GROUP: Final = "group:"
_TOKEN_BYTES: Final = 32

_log = logging.getLogger(__name__)
_SHA256: Final = r"[0-9a-f]{64}"


class Action(StrEnum):
    """Something that a user does with a flow."""

    READ = "read"
    CREATE = "create"
    UPDATE = "update"  # its config, its plan; to pause it; with RUN, to resume it
    DELETE = "delete"
    RUN = "run"  # to cancel an execution as well
    MANAGE = "manage"  # nodes, executors, packs of templates: of a rule on all flows


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who asks. ``groups``: those of the rules, of nodes and of executors."""

    name: str
    groups: frozenset[str]


def may_use(groups: frozenset[str], user: User) -> bool:
    """Whether the user may use something for these groups; for none means for all."""
    return not groups or bool(groups & user.groups)


@dataclass(frozen=True, slots=True)
class FlowPattern:
    """Flows by their names. ``group``: None for every group; ``name``: the whole name, or its begin."""

    group: str | None
    name: str
    is_prefix: bool

    def fits(self, key: FlowKey) -> bool:
        if self.group not in (None, key.group):
            return False
        return key.name.startswith(self.name) if self.is_prefix else key.name == self.name

    def covers(self, other: "FlowPattern") -> bool:
        """Whether this one fits all flows that the other one fits."""
        if self.group not in (None, other.group):
            return False
        return other.name.startswith(self.name) if self.is_prefix else not other.is_prefix and other.name == self.name


@dataclass(frozen=True, slots=True)
class FlowScope:
    """The flows that a query may answer with: what some pattern of ``allowed`` fits, and none of ``denied``."""

    allowed: tuple[FlowPattern, ...]
    denied: tuple[FlowPattern, ...] = ()

    def includes(self, key: FlowKey) -> bool:
        return any(each.fits(key) for each in self.allowed) and not any(each.fits(key) for each in self.denied)

    @property
    def may_have_some(self) -> bool:
        """Whether there may be such flows: some pattern of ``allowed`` is not within one of ``denied``."""
        return any(not any(other.covers(each) for other in self.denied) for each in self.allowed)


EVERY_FLOW: Final = FlowScope((FlowPattern(None, "", is_prefix=True),))


class AccessDeniedError(RejectedError):
    """The user may see the flow, but may not do this with it."""


class UnknownUserError(RejectedError):
    """Nobody knows who asks: without a token, or by one that is unknown or has expired."""


def parse_flow_pattern(text: str) -> FlowPattern:
    """``group/name``, ``group/prefix*``, ``group/*``, ``*``; each part may be percent-encoded."""
    if text == _ALL:
        return FlowPattern(None, "", is_prefix=True)
    group, mark, name = text.partition("/")
    if not (group and mark and name) or _ALL in name[:-1] or (_ALL in group and group != _ALL):
        raise RejectedError(
            f"expected group/name, group/prefix* or *, found {text[:200]!a}",
            field="on",
            hint="Write such as sales/orders*; a star stands for all groups, or last in a name.",
        )
    is_prefix = name.endswith(_ALL)
    return FlowPattern(None if group == _ALL else unquote(group), unquote(name.removesuffix(_ALL)), is_prefix)


def _read_texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Texts = Annotated[tuple[str, ...], BeforeValidator(_read_texts)]


class RuleOptions(SpecModel):
    """A rule as the file has it: ``allow`` or ``deny``, ``to`` whom, ``on`` which flows."""

    allow: _Texts = ()
    deny: _Texts = ()
    to: _Texts = Field(description="user:NAME, group:NAME, or * for all.")
    on: _Texts = Field((_ALL,), description="group/name, group/prefix*, or * for all.")


class TokenOptions(SpecModel):
    """A token as the file has it: by its digest, never itself."""

    user: str
    sha256: str = Field(pattern=f"^{_SHA256}$")
    expires: dt.date


class AccessOptions(SpecModel):
    """The file of rights."""

    users: dict[str, _Texts] = Field(default_factory=dict, description="The groups of each user.")
    rules: tuple[RuleOptions, ...] = ()
    tokens: tuple[TokenOptions, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A rule. ``users`` and ``groups``: None stands for everybody, and then both are."""

    allows: bool
    actions: frozenset[Action]
    users: frozenset[str] | None
    groups: frozenset[str] | None
    patterns: tuple[FlowPattern, ...]

    def concerns(self, user: User, action: Action) -> bool:
        if action not in self.actions:
            return False
        return self.users is None or user.name in self.users or bool(user.groups & (self.groups or frozenset()))


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of a user, by its digest. It is taken before ``expires_at``."""

    user: str
    sha256: str
    expires_at: dt.datetime


@dataclass(frozen=True, slots=True)
class AccessRules:
    """All rules, users and tokens of a file."""

    rules: tuple[AccessRule, ...]
    groups_of: Mapping[str, frozenset[str]]
    tokens: tuple[AccessToken, ...] = ()

    def user_named(self, name: str) -> User:
        """The user with the groups that the file gives; without any where it does not name the user."""
        return User(name, self.groups_of.get(name, frozenset()))

    def user_of(self, token: str, now: dt.datetime) -> User:
        """Whose token it is. UnknownUserError for one that is not in the file or has expired."""
        digest = digest_token(token)
        # All are compared, each in the same time: an answer's time says nothing about a digest.
        found = [each for each in self.tokens if hmac.compare_digest(each.sha256, digest)]
        if not found or now >= found[0].expires_at:
            raise UnknownUserError(
                "the token is unknown" if not found else "the token has expired",
                field="authorization",
                hint="Ask whoever keeps the file of rights for a new one (`gobblin-assets service token make`).",
            )
        return self.user_named(found[0].user)

    def scope_of(self, user: User, action: Action) -> FlowScope:
        """The flows that the user may do this with."""
        concerned = [each for each in self.rules if each.concerns(user, action)]
        return FlowScope(
            tuple(pattern for each in concerned if each.allows for pattern in each.patterns),
            tuple(pattern for each in concerned if not each.allows for pattern in each.patterns),
        )

    def may(self, user: User, action: Action, key: FlowKey) -> bool:
        return self.scope_of(user, action).includes(key)

    def may_manage(self, user: User) -> bool:
        """Whether the user may change what all flows are made of."""
        scope = self.scope_of(user, Action.MANAGE)
        return not scope.denied and EVERY_FLOW.allowed[0] in scope.allowed

    def check_manager(self, user: User) -> None:
        """AccessDeniedError unless the user may change what all flows are made of."""
        if not self.may_manage(user):
            raise AccessDeniedError(
                f"{user.name} may not change the topology and the templates",
                field="user",
                hint='Ask whoever keeps the file of rights to allow manage on all flows, `on: ["*"]`.',
            )

    def check(self, user: User, action: Action, key: FlowKey) -> None:
        """AccessDeniedError unless the user may do this with the flow."""
        if not self.may(user, action, key):
            raise AccessDeniedError(
                f"{user.name} may not {action} {key.group}/{key.name}",
                field="flow",
                hint=f"Ask whoever keeps the file of rights to allow {action} on {key.group}/{key.name}.",
            )


EVERYTHING_ALLOWED: Final = AccessRules(
    (AccessRule(True, frozenset(Action), None, None, (FlowPattern(None, "", is_prefix=True),)),),
    {},
)
"""The rules without a file, of a service that asks nobody who they are."""


class AccessFile:
    """The rules of a file, read again when the file changes.

    A change that can't be read changes nothing: the rules before it stay, and the log says what is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._rules: AccessRules | None = None

    def read(self) -> AccessRules:
        """RejectedError names what is wrong in a file that was never right."""
        with self._lock:
            seen = self._look()
            if self._rules is None or seen != self._seen:
                self._seen = seen
                try:
                    self._rules = read_access_file(self._path)
                except RejectedError as error:
                    if self._rules is None:
                        raise
                    _log.error("the rights stay as they were before the last change: %s", error)
            return self._rules

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def read_access_file(path: Path) -> AccessRules:
    """RejectedError names what is wrong in the file."""
    try:
        data = read_yaml_file(path)
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field="file of rights", hint="Correct the file, or its path.") from error
    return parse_access(data)


def parse_access(data: object) -> AccessRules:
    try:
        options = AccessOptions.model_validate(data or {})
    except ValidationError as error:
        raise refuse(error, AccessOptions) from None
    return AccessRules(
        tuple(_read_rule(each, f"rules[{number}]") for number, each in enumerate(options.rules)),
        {name: frozenset(groups) for name, groups in options.users.items()},
        tuple(
            # A day is over everywhere when it is over in UTC, and the token lasts to its end.
            AccessToken(each.user, each.sha256, _end_of_day(each.expires, f"tokens[{number}].expires"))
            for number, each in enumerate(options.tokens)
        ),
    )


def _end_of_day(day: dt.date, where: str) -> dt.datetime:
    if day == dt.date.max:
        raise RejectedError("expected an earlier day", field=where, hint="Write such as 2099-12-31.")
    return dt.datetime.combine(day, dt.time(), dt.UTC) + dt.timedelta(days=1)


def _read_rule(options: RuleOptions, where: str) -> AccessRule:
    if bool(options.allow) == bool(options.deny):
        raise RejectedError("expected either allow or deny", field=where, hint="Write two rules where both are meant.")
    users, groups = _read_subjects(options.to, f"{where}.to")
    try:
        patterns = tuple(parse_flow_pattern(each) for each in options.on)
    except RejectedError as error:
        raise RejectedError(error.message.removeprefix("on: "), field=f"{where}.on", hint=error.hint) from None
    verb = "allow" if options.allow else "deny"
    actions = _read_actions(options.allow or options.deny, f"{where}.{verb}")
    return AccessRule(bool(options.allow), actions, users, groups, patterns)


def _read_subjects(texts: Iterable[str], where: str) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    users, groups = set(), set()
    for text in texts:
        if text == _ALL:
            return None, None
        if text.startswith(_USER) and text != _USER:
            users.add(text.removeprefix(_USER))
        elif text.startswith(_GROUP) and text != _GROUP:
            groups.add(text.removeprefix(_GROUP))
        else:
            raise RejectedError(
                f"expected user:NAME, group:NAME or *, found {text[:200]!a}", field=where, hint=f"Write user:{text}?"
            )
    return frozenset(users), frozenset(groups)


def _read_actions(texts: Iterable[str], where: str) -> frozenset[Action]:
    known = {each.value: each for each in Action}
    found = set()
    for text in texts:
        if text == _ALL:
            return frozenset(Action)
        if text not in known:
            raise RejectedError(
                f"expected an action, found {text[:200]!a}", field=where, hint=f"Known: {', '.join(known)}, *."
            )
        found.add(known[text])
    return frozenset(found)


def make_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest_token(token: str) -> str:
    """The digest that the file keeps. A token is random, so that a quick digest is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
