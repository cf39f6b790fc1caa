"""The examples' source, file system and destination: found by entry points, run by a job, killed and recovered."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from tests.support import postgres
from tests.support.examples import install_example
from tests.support.lake import Lake, World

pytestmark = pytest.mark.turns(of=4)

COMMAND = ("-m", "gobblin_assets.cli")
COMMAND_S_MAX = 280
JOB = """
job: office
source: {{type: csv_folder, connection: office}}
destination: pointed://POINTERS_URL{lake}
datasets:
  - folder: invoices
    csv: {{schema: "id bigint, amount decimal(9,2)"}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name in ("gobblin_postgres_pointer", "gobblin_csv_folder"):
        install_example(name, folder)
    return folder


@dataclass
class Office:
    site: Path
    directory: Path
    environment: dict[str, str]
    pointers_url: str
    log: World

    def run(self, *arguments: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
        more = {"GOBBLIN_FAILPOINT": failpoint} if failpoint else {}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
        )

    def pointers(self) -> dict[str, str]:
        with psycopg.connect(self.pointers_url) as connection:
            if connection.execute("SELECT to_regclass('pointer')").fetchone() == (None,):
                return {}
            return dict(connection.execute("SELECT dataset, location FROM pointer").fetchall())


@pytest.fixture
def office(site: Path, server: EmbeddedServer, database_url: str, tmp_path: Path) -> Iterator[Office]:
    invoices = tmp_path / "share" / "invoices"
    invoices.mkdir(parents=True)
    (invoices / "may.csv").write_text("id,amount\n1,9.99\n2,0.10\n", encoding="utf-8")
    (invoices / "june.csv").write_text("id,amount\n3,7.00\n", encoding="utf-8")
    (tmp_path / "office.yaml").write_text(JOB.format(lake=tmp_path / "lake"), encoding="utf-8")
    with postgres.temporary_database(server) as name:
        url = server.url(name).replace("postgresql+psycopg://", "postgresql://")
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(site),
            "GOBBLIN_DATABASE_URL": database_url,
            "GOBBLIN_HOME": str(tmp_path / "home"),
            "GOBBLIN_SPARK_MASTER": "local[1]",
            "GOBBLIN_CSV_FOLDER_OFFICE_PATH": str(tmp_path / "share"),
            "POINTERS_URL": url,
            **{name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ},
        }
        world = World(Lake(database_url, str(tmp_path)))
        yield Office(site, tmp_path, environment, url, world)
        world.close()


def test_a_job_of_an_installed_source_publishes_to_an_installed_destination_and_is_recovered_from_a_kill(
    office: Office,
) -> None:
    killed = office.run(*COMMAND, "run", "office.yaml", failpoint="step_before=kill@2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr + killed.stdout
    assert office.pointers() == {}

    office.log.expire_leases()
    office.log.make_due()
    recovered = office.run(*COMMAND, "commit", "recover", "--job", "office")
    assert recovered.returncode == 0, recovered.stderr + recovered.stdout

    ((name, location),) = office.pointers().items()
    assert name == "office/invoices"
    files = sorted(Path(location).parent.glob(f"{Path(location).name}-*/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted((row["id"], str(row["amount"])) for row in rows) == [(1, "9.99"), (2, "0.10"), (3, "7.00")]


def test_dagster_has_the_connection_as_a_resource_of_the_source_s_own_fields(office: Office) -> None:
    script = """
import os
from pathlib import Path
from gobblin_assets.dagster import build_definitions
from gobblin_assets.spec.job_files import read_job_file
job = read_job_file(Path("office.yaml"))
definitions = build_definitions([job], os.environ)
resource = definitions.resources["csv_folder__office"].process_config_and_initialize()
print(type(resource).__name__, resource.open_source(job).discover(None))
print(sorted(str(spec.key.to_user_string()) for spec in definitions.resolve_all_asset_specs()))
"""
    found = office.run("-c", script)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "FolderConnectionResource ['invoices']",
        "['office/invoices', 'source/csv_folder/office/invoices']",
    ]


def test_what_a_job_says_wrongly_to_an_installed_source_is_refused_by_name(office: Office) -> None:
    text = (office.directory / "office.yaml").read_text(encoding="utf-8")
    (office.directory / "office.yaml").write_text(text.replace("schema:", "schem:"), encoding="utf-8")
    refused = office.run(*COMMAND, "run", "office.yaml")
    assert refused.returncode != 0
    assert "datasets[0].csv.schem: is not an option. Did you mean 'schema'?" in refused.stderr
