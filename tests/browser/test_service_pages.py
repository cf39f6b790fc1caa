"""The pages of the service in a real Chromium: what a person does, sees and types, with and without scripts."""

import datetime as dt
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, Response, Route, expect

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.chromium import open_page
from tests.support.database_pool import DatabasePool
from tests.support.page_checks import Typist, find_faults, find_labelled, measure_overflow, tab_to
from tests.support.running_service import RunningService
from tests.support.service_shop import DAYS, ORDERS, ServiceShop, run_service_shop
from tests.support.spark import wait_until

expect.set_options(timeout=10_000)

FLOWS = "/api/v1/flows"
TEMPLATE = "FS:///default/jdbc-to-lake.template"
FORM = f"/ui/new?template={TEMPLATE}"
RUN_S_MAX = 150
FIELDS_MAX = 5
COPY_FIELDS_MAX = 4
CUSTOMERS = 9
WAIT_MS_MAX = 20_000
POLLS_MS = 4_500
"""Time for two polls."""


@pytest.fixture(scope="module")
def shop(
    browser: Browser, server: EmbeddedServer, service_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceShop]:
    with run_service_shop(server, service_pool, tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def service(shop: ServiceShop) -> RunningService:
    return shop.service


@pytest.fixture
def page(browser: Browser, service: RunningService) -> Iterator[Page]:
    """A page at 1280 px. The browser must have nothing to complain of, such as what the page's policy refuses."""
    yield from open_page(browser, service.url)


@pytest.fixture
def plain_page(browser: Browser, service: RunningService) -> Iterator[Page]:
    """A page without scripts."""
    yield from open_page(browser, service.url, java_script_enabled=False)


@pytest.fixture(autouse=True)
def none_is_left(service: RunningService) -> Iterator[None]:
    yield
    service.delete_flows()


def make_flow(service: RunningService, name: str = "orders", node: str = "lake", **options: Any) -> str:
    """Create a flow by REST; returns the path of its page."""
    config = {
        "flow_group": "sales",
        "flow_name": name,
        "source": "shop",
        "destinations": [node],
        "template_uris": [TEMPLATE],
        "parameters": {"datasets": [{"table": "public.customers"}]},
        "run_immediately": False,
        **options,
    }
    made = service.ask("POST", FLOWS, config)
    assert made.status == 201, made.text
    return f"/ui/flows/sales/{name}"


def check_rest(service: RunningService, job: str, log: str) -> None:
    """What the pages show is there by REST as well."""
    listed = service.ask("GET", "/api/v1/datasets?flow_group=sales&flow_name=ran&node=lake&prefix=public.").json
    (dataset,) = listed["datasets"]
    assert (dataset["urn"], dataset["state"], dataset["rows"], listed["next"]) == (
        "public.customers",
        "PUBLISHED",
        9,
        None,
    )
    found = service.ask("GET", f"/api/v1/datasets/{job}/public.customers").json
    assert found["dataset"] == dataset
    (whole,) = found["partitions"]
    assert (whole["partition"], whole["rows"], whole["published_rows"]) == (None, 9, 9)
    assert service.ask("GET", f"/api/v1/datasets/{job}/public.nothing").status == 404
    (past,) = service.ask("GET", f"{FLOWS}/sales/ran/jobs/{job}").json["executions"]
    assert past["job"]["processed_count"] == 9

    def is_said() -> bool:
        outputs = service.ask("GET", log).json["outputs"]
        return any("partitions in this process" in line for each in outputs for line in each["lines"])

    wait_until(is_said, "what the process said, which is kept each 2 s")

    def is_the_same() -> bool:
        tag = service.ask("GET", log).headers["etag"]
        return service.ask("GET", log, headers={"If-None-Match": tag}).status == 304

    wait_until(is_the_same, "the same answer twice, once the last lines are kept")


def await_execution(service: RunningService, path: str) -> dict[str, Any]:
    """Its status, once it has ended."""
    until = time.monotonic() + RUN_S_MAX
    while (found := service.ask("GET", path).json)["ended_at"] is None:
        assert time.monotonic() < until, found
        time.sleep(0.2)
    return found


def count_rows(folder: Path) -> int:
    """Of the files that a reader would find."""
    files = [
        path
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    return sum(pq.read_metadata(path).num_rows for path in files)


def test_a_table_becomes_a_dataset_by_day(shop: ServiceShop, page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="New flow").click()
    page.get_by_role("link", name="as partitioned datasets").click()

    typist = Typist(page)
    plan = page.get_by_role("complementary", name="Plan")
    typist.type("Group", "sales")
    typist.type("Name", "orders")
    typist.check("lake")
    found = page.get_by_role("group", name="Tables of shop")
    expect(found, "an executor has told them").to_contain_text("public.customers", timeout=RUN_S_MAX * 1_000)
    typist.check("public.orders")
    typist.choose("Divided by time", "daily")
    page.get_by_role("button", name="Take the chosen ones").click()
    for label, proposed in (
        ("Table", "public.orders"),
        ("Primary key", "id"),
        ("Watermark column", "at"),
        ("Partitions", "daily"),
        ("Start", shop.start.isoformat()),
    ):
        control = page.get_by_role("main").locator("input, select").and_(find_labelled(page, label))
        expect(control).to_have_value(proposed, timeout=RUN_S_MAX * 1_000)
    expect(plan).to_contain_text("shop table → lake dataset by the executor local")
    plan.get_by_text("Job", exact=True).click()
    expect(plan).to_contain_text('"kind": "daily"')
    assert len(typist.typed) <= FIELDS_MAX
    page.get_by_role("button", name="Create").click()

    expect(page.get_by_role("status")).to_have_text("The flow is created.")
    execution = page.get_by_role("row").filter(has_text="COMPLETE")
    expect(execution, "the page follows the run by itself").to_be_visible(timeout=RUN_S_MAX * 1_000)
    expect(execution).to_contain_text(f"{ORDERS}")
    execution.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Execution \d+"))
    high = page.get_by_role("row").filter(has_text="local").get_by_role("cell").nth(7)
    last_day = shop.start + dt.timedelta(days=DAYS - 1)
    assert high.inner_text().startswith(f"{last_day}T12:00:00"), "the last row's, and what is next to it"
    assert count_rows(shop.lake) == ORDERS
    log = page.get_by_role("region", name="Log of")
    expect(log, "what its process said").to_contain_text("Arrow reads")
    expect(page.locator("p > time").first).to_have_text(re.compile("just now|ago|last"))
    page.get_by_role("link", name="Datasets of this flow").click()
    row = page.get_by_role("row").filter(has_text="published")
    expect(row).to_contain_text(f"{ORDERS}")
    row.get_by_role("link", name="public.orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("public.orders published")
    days = page.get_by_role("table").first.get_by_role("row").filter(has_text="added 2 rows, 1 file")
    expect(days).to_have_count(DAYS)
    expect(days.first, "the last partition comes first").to_contain_text(last_day.isoformat())
    expect(page.get_by_role("table").last).to_contain_text(f"{last_day}T12:00:00")
    page.get_by_role("link", name="Datasets", exact=True).first.click()
    page.get_by_label("Name begins with").fill("public.c")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("main")).to_contain_text("No dataset fits the search.")


def await_complete(page: Page) -> None:
    """Wait until the flow's page has an execution that is complete."""
    expect(page.get_by_role("row").filter(has_text="COMPLETE")).to_be_visible(timeout=RUN_S_MAX * 1_000)


def test_a_published_dataset_is_copied_to_a_second_lake(shop: ServiceShop, service: RunningService, page: Page) -> None:
    published = make_flow(service, "customers", run_immediately=True)
    page.goto(published)
    await_complete(page)
    job = service.ask("GET", f"{FLOWS}/sales/customers/status").json["jobs"][0]["job_name"]

    page.goto("/ui/new?template=FS:///default/dataset-to-tree.template&source=lake")
    page.get_by_role("group", name="Datasets of lake").get_by_label("public.customers").check()
    page.get_by_role("button", name="Take the chosen ones").click()
    expect(page.locator("[name='datasets[0].job']")).to_have_value(job)

    page.goto(published)
    page.get_by_role("link", name="Copy the datasets of lake").click()
    typist = Typist(page)
    plan = page.get_by_role("complementary", name="Plan")
    typist.type("Group", "sales")
    typist.type("Name", "copies")
    typist.check("second")
    expect(page.locator("[name='datasets[0].dataset']")).to_have_value("public.customers")
    expect(plan).to_contain_text("lake dataset → second tree by the executor local")
    expect(plan).to_contain_text(f"public.customers by the ledger of the job {job}")
    assert len(typist.typed) <= COPY_FIELDS_MAX
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The flow is created.")
    await_complete(page)
    assert count_rows(shop.second) == CUSTOMERS


@pytest.mark.turns(of=4)
def test_requests_and_commands_are_answered_as_forms_are(service: RunningService, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gobblin_assets.cli", "service", *words]
        done = subprocess.run(command, env=service.environment, capture_output=True, text=True, timeout=RUN_S_MAX)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "island" in run("node", "list")
    assert "ingest.jdbc" in run("executor", "list")
    assert "public.customers" in run("node", "suggest", "shop")
    assert "watermark columns, the best first: id, at, amount" in run("node", "suggest", "shop", "--table", "orders")
    config = {
        "flow_group": "sales",
        "flow_name": "orders",
        "source": "shop",
        "destinations": "lake",
        "template_uris": [TEMPLATE],
        "parameters": {"datasets": [{"table": "public.orders", "primary_key": ["id"]}]},
    }
    (tmp_path / "orders.json").write_text(json.dumps(config))
    assert "1 partitions, 1 WorkUnits" in run("flow", "explain", str(tmp_path / "orders.json"), "--dry-run")
    assert service.ask("GET", FLOWS).json["flows"] == []


def test_a_flow_is_run_paused_resumed_and_deleted(service: RunningService, page: Page) -> None:
    path = make_flow(service)
    page.goto(path)
    page.get_by_role("button", name="Run").dblclick()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Execution \d+"))
    page.get_by_role("link", name="sales / orders").click()
    expect(page.get_by_role("row"), "two clicks run once").to_have_count(1 + 1 + 2 + 2)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sales / orders PAUSED")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sales / orders ACTIVE")
    delete = page.get_by_role("button", name="Delete sales / orders")
    expect(delete, "it is asked for first").to_be_hidden()
    page.get_by_text("Delete", exact=True).click()
    delete.click()
    expect(page).to_have_url(re.compile("/ui/flows"))
    assert service.ask("GET", path).status == 404


def test_a_wrong_value_is_explained_beside_its_field(page: Page) -> None:
    page.goto(FORM)
    typist = Typist(page)
    typist.type("Group", "sales")
    typist.type("Name", "orders")
    typist.check("lake")
    typist.type("Table", "no;table")
    page.get_by_role("button", name="Create").click()
    table = find_labelled(page, "Table")
    expect(table).to_have_value("no;table")
    expect(find_labelled(page, "Group")).to_have_value("sales")
    expect(page.get_by_label("lake")).to_be_checked()
    expect(table).to_be_focused()
    expect(table).to_have_attribute("aria-invalid", "true")
    expect(table).to_have_accessible_description(re.compile("public.orders.*found 'no;table'", re.DOTALL))
    message = page.get_by_role("main").get_by_text("found 'no;table'").first
    field, said = table.bounding_box(), message.bounding_box()
    assert field is not None
    assert said is not None
    assert 0 <= said["y"] - field["y"] - field["height"] < 90
    table.fill("public.customers")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The flow is created.")


def test_everything_is_done_without_scripts(service: RunningService, plain_page: Page) -> None:
    page = plain_page
    page.goto(FORM)
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("complementary", name="Plan")).to_contain_text("flow_group")
    typist = Typist(page)
    typist.type("Group", "sales")
    typist.type("Name", "orders")
    typist.check("lake")
    typist.type("Table", "public.orders")
    page.get_by_role("button", name="Add another").click()
    find_labelled(page, "Table").last.fill("public.customers")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("complementary", name="Plan")).to_contain_text("shop table → lake dataset")
    page.get_by_label("Run it at once").uncheck()
    page.get_by_role("button", name="Create").click()
    parameters = service.ask("GET", f"{FLOWS}/sales/orders").json["config"]["parameters"]
    assert parameters == {"datasets": [{"table": "public.orders"}, {"table": "public.customers"}]}
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("link", name="Change").click()
    find_labelled(page, "Table").last.fill("public.others")
    page.get_by_role("button", name="Store the change").click()
    assert service.ask("GET", f"{FLOWS}/sales/orders").json["version"] == "2"
    page.get_by_role("link", name="Flows").click()
    page.get_by_label("Search").fill("order")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="sales / orders").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Delete sales / orders").click()
    assert service.ask("GET", FLOWS).json["flows"] == []


def test_keys_are_enough(service: RunningService, page: Page) -> None:
    keys = page.keyboard
    page.goto("/ui/flows")
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    tab_to(page, page.get_by_role("link", name="New flow"))
    keys.press("Enter")
    page.wait_for_url("**/ui/new")
    tab_to(page, page.get_by_role("link", name="as partitioned datasets"))
    keys.press("Enter")
    page.wait_for_url("**/ui/new?*")
    for label, typed in (("Group", "sales"), ("Name", "orders")):
        tab_to(page, find_labelled(page, label))
        keys.type(typed)
    tab_to(page, find_labelled(page, "island"))
    keys.press("Space")
    tab_to(page, find_labelled(page, "Table"))
    keys.type("public.customers")
    tab_to(page, page.get_by_text("Options"))
    keys.press("Enter")
    tab_to(page, find_labelled(page, "Primary key"))
    keys.type("id")
    tab_to(page, page.get_by_role("button", name="Create"))
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("sales / orders PENDING")
    tab_to(page, page.get_by_role("button", name="Pause"))
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("sales / orders PAUSED")
    tab_to(page, page.get_by_text("Delete", exact=True))
    keys.press("Enter")
    tab_to(page, page.get_by_role("button", name="Delete sales / orders"))
    keys.press("Enter")
    page.wait_for_url("**/ui/flows?*")
    assert service.ask("GET", FLOWS).json["flows"] == []


def test_each_page_is_sound(service: RunningService, page: Page) -> None:
    """For screen readers, by day and night, and on a telephone."""
    ran, long = make_flow(service, "ran", description="Customers, " * 8), "a_name_of_many_letters_" * 5
    execution = service.ask("POST", f"{FLOWS}/sales/ran:run").json["execution_id"]
    make_flow(service, long, "island")
    paths = ("/ui/flows", "/ui/flows?pending=1", "/ui/flows?search=none", ran, f"{ran}/executions/{execution}")
    job = service.ask("GET", f"{FLOWS}/sales/ran/jobs").json[0]["job_name"]
    await_execution(service, f"{FLOWS}/sales/ran/executions/{execution}")
    check_rest(service, job, f"{FLOWS}/sales/ran/executions/{execution}/jobs/0/log")
    paths += ("/ui/datasets", "/ui/datasets?search=none", f"/ui/datasets/{job}/public.customers")
    paths += (f"{ran}/edit", f"/ui/flows/sales/{long}", FORM, "/ui/new", "/ui/new?source=shop&to=lake")
    paths += ("/ui/topology", "/ui/templates", "/ui/packs", "/ui/packs/default/2", "/ui/login", "/ui/flows/no/flow")
    faults = []
    for path in paths:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.emulate_media(color_scheme="light")
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        faults += [f"{path}: {each}" for each in find_faults(page)]
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 400, "height": 800})
        faults += [f"{path}, small and dark: {each}" for each in find_faults(page)]
        if overflow := measure_overflow(page):
            faults.append(f"{path}: {overflow} px too wide")
    assert not faults, "\n".join(faults)


def test_a_fragment_is_swapped_only_when_it_changed(service: RunningService, page: Page) -> None:
    path = make_flow(service)
    answers: list[int] = []

    def keep(answer: Response) -> None:
        if "x-fragment" in answer.request.headers:
            answers.append(answer.status)

    page.on("response", keep)
    page.goto(path)
    page.evaluate("document.getElementById('executions').firstElementChild.isFirst = true")
    page.wait_for_timeout(POLLS_MS)
    assert answers == [200, 304]
    assert page.evaluate("document.getElementById('executions').firstElementChild.isFirst"), "nothing was swapped"
    assert service.ask("POST", f"{FLOWS}/sales/orders:pause").status == 200
    expect(page.get_by_role("heading", level=1)).to_have_text("sales / orders PAUSED")
    assert page.evaluate("document.getElementById('executions').firstElementChild.isFirst"), "another part changed"
    assert answers[-1] == 200


def test_a_page_says_when_the_service_is_away(service: RunningService, page: Page) -> None:
    page.goto("/ui/flows")
    expect(page.get_by_role("main")).to_contain_text("There is no flow yet")
    make_flow(service)
    expect(page.get_by_role("link", name="sales / orders"), "the list follows the service").to_be_visible()
    said = page.get_by_text("The service does not answer")
    expect(said).to_be_hidden()
    page.route("**/ui/flows", lambda route: route.abort())
    expect(said).to_be_visible()
    page.unroute("**/ui/flows")
    expect(said).to_be_hidden()


def test_a_form_of_another_origin_is_refused(service: RunningService, page: Page) -> None:
    make_flow(service)

    def attack(route: Route) -> None:
        form = f'<form method="post" action="{service.url}/ui/flows/sales/orders/delete"><button>Win</button></form>'
        route.fulfill(body=form, content_type="text/html")

    page.route("http://other.example/**", attack)
    page.goto("http://other.example/")
    with page.expect_response(re.compile("/delete$")) as answered:
        page.get_by_role("button", name="Win").click()
    assert answered.value.status == 403
    assert service.ask("GET", f"{FLOWS}/sales/orders").status == 200
