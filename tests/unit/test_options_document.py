"""docs/OPTIONS.md has every option of a job, as the models have it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_is_what_the_models_say() -> None:
    command = [sys.executable, str(ROOT / "tools" / "write_options.py")]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    page = (ROOT / "docs" / "OPTIONS.md").read_text(encoding="utf-8")
    assert page == written, "python tools/write_options.py > docs/OPTIONS.md"
