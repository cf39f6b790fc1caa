"""A browser for the tests of a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import run_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as started:
        yield started
