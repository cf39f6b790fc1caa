"""The pages in a real Chromium: the story of a table, typed and clicked; keyboard; narrow screens; the script.

Chromium is that of GOBBLIN_TEST_CHROMIUM, else `chromium` of the PATH; without one, these tests are left out.
"""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.running_service import RunningService, prepare_database, run_service

CHROMIUM = os.environ.get("GOBBLIN_TEST_CHROMIUM") or shutil.which("chromium")
TYPED_FIELDS_MAX = 8
PAGES = ["flows", "flows/sales/orders", "new", "new?template=FS:///tables.template", "topology", "templates"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def service(
    server: EmbeddedServer, database_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    with postgres.migrated_database(server, database_pool) as name:
        prepare_database(server.url(name))
        with run_service(tmp_path_factory.mktemp("service"), server.url(name), "--no-auth") as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, service: RunningService) -> Iterator[Page]:
    """A page whose script must not fail, and whose policy refuses nothing."""
    context = browser.new_context(base_url=service.url, viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    failures: list[str] = []

    def note(kind: str, text: str) -> None:
        # The browser's own word for an answer that a test made up.
        if kind == "error" and "503" not in text:
            failures.append(text)

    opened.on("pageerror", lambda error: failures.append(str(error)))
    opened.on("console", lambda message: note(message.type, message.text))
    yield opened
    context.close()
    assert failures == []


@pytest.fixture(autouse=True)
def none_is_left(service: RunningService) -> Iterator[None]:
    yield
    for flow in service.ask("GET", "/api/v1/flows").json["flows"]:
        service.ask("DELETE", f"/api/v1/flows/{flow['uri'].partition(':/')[2]}")


def describe_flow(page: Page) -> int:
    """Fill in the form for a table that goes to the lake; returns how many fields were typed or chosen."""
    page.goto("/ui/new?template=FS:///tables.template")
    typed = {"flow_group": "sales", "flow_name": "orders", "tables[0].table": "public.orders"}
    for name, text in typed.items():
        page.locator(f'[name="{name}"]').fill(text)
    page.locator("input[name=destinations][value=lake]").check()
    return len(typed) + 1


def test_a_table_goes_to_the_lake(page: Page, service: RunningService) -> None:
    assert describe_flow(page) <= TYPED_FIELDS_MAX
    page.wait_for_selector("#explanation .plan")
    assert "orders_to_lake_" in page.locator("#explanation").inner_text()
    page.get_by_role("button", name="Create").last.click()
    page.wait_for_url("**/ui/flows/sales/orders**")
    assert "The flow is created." in page.locator("main").inner_text()

    status = service.ask("GET", "/api/v1/flows/sales/orders/status").json
    service.ask("POST", "/api/v1/flows/sales/orders:cancel", {"execution_id": status["execution_id"]})
    page.wait_for_selector("td a")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_selector(".state.paused")


def test_the_plan_says_what_is_wrong_while_it_is_typed(page: Page) -> None:
    describe_flow(page)
    page.locator('[name="tables[0].table"]').fill("no table!")
    page.wait_for_selector("#explanation .note")
    assert "parameters.tables[0].table" in page.locator("#explanation").inner_text()


def test_a_page_follows_the_service(page: Page, service: RunningService) -> None:
    page.goto("/ui/flows")
    assert "There is no flow yet" in page.locator("main").inner_text()
    make_flow(service)
    page.wait_for_selector("text=sales / orders")
    service.ask("POST", "/api/v1/flows/sales/orders:pause")
    page.wait_for_selector(".state.paused")


def test_a_page_says_that_nobody_answers(page: Page, service: RunningService) -> None:
    page.goto("/ui/flows")
    page.route("**/ui/flows", lambda route: route.fulfill(status=503, body=""))
    page.wait_for_selector("#offline:not([hidden])")
    page.unroute("**/ui/flows")
    page.wait_for_selector("#offline", state="hidden")


def make_flow(service: RunningService) -> None:
    body = {
        "flow_group": "sales",
        "flow_name": "orders",
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///tables.template"],
        "parameters": {"tables": [{"table": "public.orders"}]},
        "run_immediately": False,
    }
    assert service.ask("POST", "/api/v1/flows", body).status == 201


def test_all_is_reached_by_the_keyboard(page: Page, service: RunningService) -> None:
    make_flow(service)
    page.goto("/ui/flows/sales/orders")
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.innerText || document.activeElement.name || ''"))
    assert {"Skip to the content", "Flows", "New flow", "Run", "Partitions", "Pause", "Change", "Delete"} <= reached
    page.goto("/ui/new?template=FS:///tables.template")
    page.locator("#flow_group").focus()
    page.keyboard.type("sales")
    page.keyboard.press("Tab")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    # The browser asks for the field that is required, and sends nothing.
    assert page.evaluate("document.querySelector('form[data-explain]').checkValidity()") is False


@pytest.mark.parametrize("path", PAGES)
def test_a_narrow_screen_shows_all_without_scrolling_sideways(page: Page, service: RunningService, path: str) -> None:
    make_flow(service)
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"/ui/{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("path", PAGES)
def test_each_control_has_a_name(page: Page, service: RunningService, path: str) -> None:
    make_flow(service)
    page.goto(f"/ui/{path}")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input:not([type=hidden]), select, button, a, summary")]
            .filter((each) => !(each.labels && each.labels.length) && !each.innerText.trim()
                && !each.getAttribute("aria-label") && each.checkVisibility())
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("h1").count() == 1
