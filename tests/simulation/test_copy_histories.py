"""Copies in any order, with any faults and strangers that hypothesis can generate.

``GOBBLIN_PROOF_EXAMPLES`` sets the number of histories; the tests' seed chooses them. A failing history is printed with
the fewest deeds that still fail.
"""

import os

import pytest
from hypothesis import seed, settings

from tests.simulation.copy_machine import COPY_DEEDS_MAX, CopyHistories
from tests.support.shares import read_seed

pytestmark = pytest.mark.usefixtures("share")

EXAMPLES = int(os.environ.get("GOBBLIN_PROOF_EXAMPLES", "20"))

TestCopyHistories = seed(read_seed())(CopyHistories).TestCase
TestCopyHistories.settings = settings(max_examples=EXAMPLES, stateful_step_count=COPY_DEEDS_MAX, deadline=None)
