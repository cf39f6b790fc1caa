"""``SimCommitStepStore(db)``: the port ``CommitStepStore`` over a ``SimDatabase``, put together from its roles.

Each method is one atomic transaction on the shared tables: it happens completely, or raises and has changed nothing. It
raises the families that the Postgres adapter raises, and a repeated call finds its own work done in the same way.
Faults are not made here: the world that simulates them wraps the port.
"""

from tests.simulation.log_building import SimSequenceSealer
from tests.simulation.log_finishing import SimSequenceFinisher
from tests.simulation.log_folding import SimSequenceFolder


class SimCommitStepStore(SimSequenceSealer, SimSequenceFinisher, SimSequenceFolder):
    """All roles over one ``SimDatabase``."""
