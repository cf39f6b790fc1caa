"""Rights: rules, patterns, tokens, and what a file of rights may not say."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.access import (
    EVERYTHING_ALLOWED,
    AccessDeniedError,
    AccessFile,
    AccessRules,
    Action,
    UnknownUserError,
    User,
    digest_token,
    parse_access,
    parse_flow_pattern,
)
from gobblin_assets.service.specs import FlowKey

ANN = User("ann", frozenset({"sales"}))
BOB = User("bob", frozenset())
ORDERS = FlowKey("sales", "orders")


def make_rules(*rules: dict[str, Any], **more: Any) -> AccessRules:
    return parse_access({"rules": list(rules), **more})


def test_what_no_rule_allows_is_denied() -> None:
    rules = make_rules()
    assert not any(rules.may(ANN, action, ORDERS) for action in Action)
    with pytest.raises(AccessDeniedError) as caught:
        rules.check(ANN, Action.RUN, ORDERS)
    assert "ann may not run sales/orders" in caught.value.message
    assert caught.value.hint


def test_a_rule_is_of_users_groups_or_all() -> None:
    for to, users in (("user:bob", {"bob"}), ("group:sales", {"ann"}), ("*", {"ann", "bob"})):
        rules = make_rules({"allow": "read", "to": to})
        assert {user.name for user in (ANN, BOB) if rules.may(user, Action.READ, ORDERS)} == users
        assert not rules.may(ANN, Action.RUN, ORDERS)


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        ("sales/*", "*", False),
        ("sales/or*", "sales/*", False),
        ("sales/orders", "sales/or*", False),
        ("sales/orders", "sales/orders", False),
        ("*", "sales/*", True),
        ("sales/*", "sales/orders", True),
        ("sales/orders*", "sales/orders", True),
        ("sales/*", "finance/*", True),
    ],
)
def test_who_is_denied_all_that_is_allowed_has_no_flow(allowed: str, denied: str, expected: bool) -> None:
    rules = make_rules({"allow": "create", "to": "*", "on": allowed}, {"deny": "create", "to": "*", "on": denied})
    assert rules.scope_of(ANN, Action.CREATE).may_have_some is expected
    assert not make_rules().scope_of(ANN, Action.CREATE).may_have_some


def test_deny_wins_over_whatever_allows() -> None:
    for order in (1, -1):
        rules = make_rules(
            *[{"allow": "*", "to": "*"}, {"deny": ["delete"], "to": "group:sales", "on": "sales/or*"}][::order]
        )
        assert not rules.may(ANN, Action.DELETE, ORDERS)
        assert rules.may(ANN, Action.DELETE, FlowKey("sales", "items"))
        assert rules.may(ANN, Action.RUN, ORDERS)
        assert rules.may(BOB, Action.DELETE, ORDERS)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*", True),
        ("sales/*", True),
        ("sales/orders", True),
        ("sales/ord*", True),
        ("*/orders", True),
        ("%73ales/orders", True),
        ("sales/order", False),
        ("sales/orders_old*", False),
        ("sale/*", False),
    ],
)
def test_patterns(pattern: str, fits: bool) -> None:
    assert parse_flow_pattern(pattern).fits(ORDERS) is fits


def test_a_name_with_a_slash_is_written_percent_encoded() -> None:
    assert parse_flow_pattern("a%2Fb/c*").fits(FlowKey("a/b", "cd"))


@pytest.mark.parametrize("pattern", ["", "sales", "sales/", "/orders", "sales/o*s", "s*/orders", "**"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RejectedError) as caught:
        make_rules({"allow": "*", "to": "*", "on": ["*", pattern]})
    assert caught.value.field == "rules[0].on"


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"to": "*"}, "rules[0]"),
        ({"allow": "*", "deny": "*", "to": "*"}, "rules[0]"),
        ({"allow": "reed", "to": "*"}, "rules[0].allow"),
        ({"deny": ["read", "reed"], "to": "*"}, "rules[0].deny"),
        ({"allow": "*", "to": "ann"}, "rules[0].to"),
        ({"allow": "*", "to": "user:"}, "rules[0].to"),
        ({"allow": "*"}, "rules[0].to"),
        ({"allow": "*", "to": "*", "flows": "*"}, "rules[0].flows"),
    ],
)
def test_a_rule_names_its_mistake(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(RejectedError) as caught:
        make_rules(rule)
    assert caught.value.field == field
    assert caught.value.hint


def test_all_flows_are_managed_by_those_who_may_manage_all() -> None:
    EVERYTHING_ALLOWED.check_manager(BOB)
    make_rules({"allow": "manage", "to": "user:bob"}).check_manager(BOB)
    for rules in (
        make_rules({"allow": "manage", "to": "user:bob", "on": "sales/*"}),
        make_rules({"allow": "*", "to": "user:ann"}),
        make_rules({"allow": "*", "to": "*"}, {"deny": "manage", "to": "*", "on": "sales/*"}),
    ):
        with pytest.raises(AccessDeniedError):
            rules.check_manager(BOB)


def test_a_token_is_its_users_until_the_end_of_its_last_day() -> None:
    rules = make_rules(
        users={"ann": ["sales"]}, tokens=[{"user": "ann", "sha256": digest_token("secret"), "expires": "2026-01-31"}]
    )
    last = dt.datetime(2026, 1, 31, 23, 59, 59, tzinfo=dt.UTC)
    assert rules.user_of("secret", last) == ANN
    for token, now in (("secret", last + dt.timedelta(seconds=1)), ("secret ", last), ("", last)):
        with pytest.raises(UnknownUserError):
            rules.user_of(token, now)


@pytest.mark.parametrize("token", [{"sha256": "secret"}, {"expires": "soon"}, {"user": None}])
def test_a_token_stands_in_the_file_by_its_digest(token: dict[str, Any]) -> None:
    good = {"user": "ann", "sha256": digest_token("secret"), "expires": "2026-01-31"}
    with pytest.raises(RejectedError):
        make_rules(tokens=[{**good, **token}])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: []\nrules: []\n", "says it twice"),
        ("tokens:\n- {user: ann, sha256: x, expires: 2027-02-30}\n", "2027-02-30|day is out of range"),
        (f"tokens:\n- {{user: ann, sha256: {'a' * 64}, expires: 9999-12-31}}\n", "an earlier day"),
        ("{", "no YAML"),
    ],
)
def test_a_file_that_says_two_things_or_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(text)
    with pytest.raises(RejectedError, match=said):
        AccessFile(file).read()


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    with pytest.raises(RejectedError):
        AccessFile(path).read()
    path.write_text("rules: [{allow: read, to: '*'}]", encoding="utf-8")
    file = AccessFile(path)
    first = file.read()
    assert file.read() is first
    path.write_text("rules: [{allow: read", encoding="utf-8")
    assert file.read() is first, "what can't be read changes nothing"
    path.write_text("rules: []", encoding="utf-8")
    assert not file.read().may(ANN, Action.READ, ORDERS)
    path.unlink()
    assert not file.read().may(ANN, Action.READ, ORDERS)
