"""What `dg check yaml` says of a component's file, as a person sees it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dg_project import defs_folder, make_project

CLONE = Path(__file__).parents[2]
FILE = """type: gobblin_assets.dagster.component.GobblinJobComponent

attributes:
  job: shop
  source: {connection: sales}
  destination: ../../../../lake
  datasets:
    - table: public.orders
  translation: {owners: [team:data, "{{ env.OWNER }}"]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = make_project(tmp_path)
    (defs_folder(root) / "shop").mkdir()
    return root


def check(project: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (defs_folder(project) / "shop" / "defs.yaml").write_text(text, encoding="utf-8")
    path = f"{project / 'src'}{os.pathsep}{CLONE}"
    return subprocess.run(
        [Path(sys.executable).with_name("dg"), "check", "yaml", "--no-validate-requirements"],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DG_CLI_CONFIG": str(project / "none.toml"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.turns("what Spark meets", of=8)
def test_a_misspelt_key_and_a_wrong_owner_are_named_at_their_places(project: Path) -> None:
    good = check(project, FILE)
    assert good.returncode == 0, good.stdout + good.stderr
    wrong = FILE.replace("{connection: sales}", "{conection: sales}").replace('[team:data, "{{ env.OWNER }}"]', "data")
    said = check(project, wrong)
    assert said.returncode != 0
    for part in (
        "attributes.source.conection Additional properties are not allowed ('conection' was unexpected)",
        "attributes.source 'connection' is a required property",
        "attributes.translation.owners 'data' is not of type 'array'",
    ):
        assert part in said.stdout
    assert "under any of the given schemas" not in said.stdout
