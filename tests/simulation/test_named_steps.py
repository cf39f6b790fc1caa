"""Steps at given names keep the promises of the model, whoever acts in which order, and whenever the power goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.named_histories import Deed, History, Verb
from tests.simulation.named_subjects import SUBJECTS, Subject

BITS = st.integers(0, 2**16 - 1)
OWNERS = st.integers(0, 5)
ALONE = st.builds(Deed, st.sampled_from(Verb), OWNERS, kept=BITS)
DEEDS = st.one_of(ALONE, st.builds(Deed, st.sampled_from(Verb), OWNERS, ALONE, st.integers(0, 10), BITS))


@pytest.mark.parametrize("subject", [make() for make in SUBJECTS], ids=[make.__name__ for make in SUBJECTS])
@settings(max_examples=300)
@given(deeds=st.lists(DEEDS, max_size=12))
def test_every_history_keeps_the_promises(subject: Subject, deeds: list[Deed]) -> None:
    history = History(subject)
    for deed in deeds:
        history.act(deed)
