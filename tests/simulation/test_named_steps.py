"""Steps at given names keep the promises of the model, whoever acts in which order, and whenever the power goes."""

from collections.abc import Callable, Iterator
from itertools import count, product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.named_histories import Deed, History, LoggedState, Verb
from tests.simulation.named_subjects import (
    CLOSED,
    FILES,
    SUBJECTS,
    TARGET,
    Subject,
    clear_directory,
    close_directory,
    ensure_directory,
    find_mode,
    list_at_name,
    open_directory,
    place_directory,
    remove_file,
    replace_by_exchange,
    replace_by_two_renames,
)
from tests.support.shares import OFTEN_SHARES

Plot = tuple[Deed, ...]

OPENINGS: Final[tuple[Plot, ...]] = tuple((Deed(Verb.EXECUTE),) * times for times in range(3))
CLAIMS: Final[tuple[Plot, ...]] = ((), (Deed(Verb.TAKE_OVER),), (Deed(Verb.TAKE_OVER),) * 2, (Deed(Verb.ABANDON),))
INTERRUPTED: Final = (Deed(Verb.EXECUTE), Deed(Verb.EXECUTE, owner=1), Deed(Verb.UNDO))
INTERRUPTIONS: Final = (
    Deed(Verb.WRITE),
    Deed(Verb.WRITE, kept=1),
    Deed(Verb.REMOVE),
    Deed(Verb.REMOVE, kept=1),
    Deed(Verb.EXECUTE),
    Deed(Verb.EXECUTE, owner=1),
    Deed(Verb.UNDO),
    Deed(Verb.CUT),
    Deed(Verb.CUT, kept=-1),
    Deed(Verb.LOSE),
)
AFTER_A_CUT: Final = tuple(map(Deed, (Verb.CUT, Verb.TAKE_OVER, Verb.EXECUTE, Verb.EXECUTE, Verb.FINISH)))
ENDINGS: Final[tuple[Plot, ...]] = (
    (Deed(Verb.EXECUTE), Deed(Verb.EXECUTE), Deed(Verb.FINISH), Deed(Verb.EXECUTE, owner=1), *AFTER_A_CUT),
    (Deed(Verb.ABANDON), Deed(Verb.UNDO), Deed(Verb.UNDO), Deed(Verb.EXECUTE), *AFTER_A_CUT),
)

BITS = st.integers(0, 2**16 - 1)
OWNERS = st.sampled_from((0, 0, 0, 1, 2))
DEEDS = st.one_of(
    st.builds(Deed, st.sampled_from(Verb), OWNERS, kept=BITS),
    st.builds(
        Deed,
        st.sampled_from((Verb.EXECUTE, Verb.FINISH, Verb.UNDO)),
        OWNERS,
        st.builds(Deed, st.sampled_from(Verb), OWNERS, kept=BITS),
        st.integers(0, 8),
    ),
)


def play(subject: Subject, *deeds: Deed, captures: bool = True) -> History:
    history = History(subject, captures=captures)
    for deed in deeds:
        history.act(deed)
    return history


def list_interrupted(deed: Deed, meanwhile: Deed) -> Iterator[Deed]:
    """The deed, interrupted at each of its calls."""
    return (Deed(deed.verb, deed.owner, meanwhile, call, deed.kept) for call in count())


class TestNamedSteps:
    """A class, since these steps do not depend on the job kind and the destination."""

    @pytest.mark.rotating(of=OFTEN_SHARES)
    @pytest.mark.parametrize("make", SUBJECTS)
    def test_a_deed_that_is_interrupted_at_any_call_keeps_the_promises(self, make: Callable[[], Subject]) -> None:
        subject, played = make(), 0
        for opening, claims, deed, meanwhile in product(OPENINGS, CLAIMS, INTERRUPTED, INTERRUPTIONS):
            if max(deed.owner, meanwhile.owner) > claims.count(Deed(Verb.TAKE_OVER)):
                continue
            for interrupted in list_interrupted(deed, meanwhile):
                histories = [play(subject, *opening, *claims, interrupted, *ending) for ending in ENDINGS]
                played += len(histories)
                if not histories[0].interruptions:
                    break
        assert played > 1_000

    @pytest.mark.rotating(of=OFTEN_SHARES)
    @pytest.mark.parametrize("make", SUBJECTS)
    @given(deeds=st.lists(DEEDS, max_size=12))
    def test_a_random_history_keeps_the_promises(self, make: Callable[[], Subject], deeds: list[Deed]) -> None:
        play(make(), *deeds)

    @pytest.mark.parametrize("make", FILES)
    def test_a_capture_that_is_left_out_is_missed(self, make: Callable[[], Subject]) -> None:
        overtaken = (Deed(Verb.TAKE_OVER), Deed(Verb.VERIFY), Deed(Verb.EXECUTE, owner=1))
        play(make(), *overtaken)
        with pytest.raises(AssertionError, match="an overtaken owner had an effect"):
            play(make(), *overtaken, captures=False)

    def test_a_file_is_replaced_without_a_gap_and_its_old_version_is_kept(self) -> None:
        history = play(replace_by_exchange(), Deed(Verb.EXECUTE), Deed(Verb.EXECUTE), Deed(Verb.FINISH))
        assert history.logged_state is LoggedState.DONE
        assert list_at_name(history.disk) == history.subject.new
        assert history.subject.old <= set(history.disk.files().values())

    @pytest.mark.parametrize("make", [*FILES, place_directory])
    def test_an_abandoned_step_leaves_the_name_as_it_was(self, make: Callable[[], Subject]) -> None:
        history = play(make(), Deed(Verb.EXECUTE), Deed(Verb.EXECUTE), Deed(Verb.ABANDON), Deed(Verb.UNDO))
        assert history.logged_state is LoggedState.UNDONE
        assert list_at_name(history.disk) == history.subject.old

    def test_a_stranger_s_file_that_an_execution_took_along_is_put_back(self) -> None:
        late = Deed(Verb.EXECUTE, meanwhile=Deed(Verb.WRITE), at_call=3)
        for make in (replace_by_exchange, replace_by_two_renames, remove_file):
            history = play(make(), late, Deed(Verb.EXECUTE))
            assert list_at_name(history.disk) == history.guests

    def test_a_stranger_s_file_that_an_undo_took_along_is_put_back(self) -> None:
        late = Deed(Verb.UNDO, meanwhile=Deed(Verb.WRITE), at_call=7)
        history = play(replace_by_exchange(), Deed(Verb.EXECUTE), Deed(Verb.ABANDON), late, Deed(Verb.UNDO))
        assert history.interruptions == 1
        assert list_at_name(history.disk) == history.guests

    @pytest.mark.parametrize("make", [*FILES, place_directory])
    def test_what_never_happened_is_given_up_although_the_attempt_is_gone(self, make: Callable[[], Subject]) -> None:
        history = play(make(), Deed(Verb.LOSE), Deed(Verb.ABANDON), Deed(Verb.UNDO))
        assert history.logged_state is LoggedState.UNDONE
        assert list_at_name(history.disk) == history.subject.old

    @pytest.mark.parametrize("make", [place_directory, ensure_directory])
    @pytest.mark.parametrize(
        "taken", [(), (Deed(Verb.WRITE, kept=1),), (Deed(Verb.WRITE),)], ids=["free", "directory", "file"]
    )
    @pytest.mark.parametrize("goes_on", [False, True])
    def test_what_a_power_cut_takes_back_with_a_stranger_s_file_in_it_is_kept(
        self, make: Callable[[], Subject], taken: Plot, *, goes_on: bool
    ) -> None:
        happened = (Deed(Verb.EXECUTE), Deed(Verb.WRITE), Deed(Verb.CUT), *taken)
        on = (Deed(Verb.TAKE_OVER), Deed(Verb.EXECUTE), Deed(Verb.FINISH))
        back = (Deed(Verb.ABANDON), Deed(Verb.UNDO), Deed(Verb.UNDO))
        history = play(make(), *happened, *(on if goes_on else back))
        if not taken:
            assert b"guest 0" in list_at_name(history.disk)

    @pytest.mark.parametrize("lost", [(), (Deed(Verb.LOSE),)], ids=["", "without the attempt"])
    def test_a_directory_that_was_opened_is_closed_when_its_sequence_is_given_up(self, lost: Plot) -> None:
        history = play(open_directory(), Deed(Verb.EXECUTE), *lost, Deed(Verb.ABANDON), Deed(Verb.UNDO))
        assert history.logged_state is LoggedState.UNDONE
        assert find_mode(history.disk) == CLOSED

    @pytest.mark.parametrize("mode", [0o500, 0o700, 0o777])
    @pytest.mark.parametrize("is_open", [False, True])
    @pytest.mark.parametrize("ends", [(Deed(Verb.EXECUTE), Deed(Verb.FINISH)), (Deed(Verb.ABANDON), Deed(Verb.UNDO))])
    def test_a_stranger_s_mode_stays(self, mode: int, ends: Plot, *, is_open: bool) -> None:
        """Without the right to write, nothing can be done in the directory, and a person must look."""
        history = play((close_directory if is_open else open_directory)())
        history.disk.change_mode(TARGET, mode)
        history.is_disturbed = True
        for deed in ends:
            history.act(deed)
        assert find_mode(history.disk) == mode
        waits = not is_open and mode == 0o500 and history.logged_state is LoggedState.OPEN
        assert waits or history.logged_state in (LoggedState.DONE, LoggedState.UNDONE)

    def test_what_a_stranger_put_into_a_directory_that_gave_way_is_kept(self) -> None:
        late = Deed(Verb.EXECUTE, meanwhile=Deed(Verb.WRITE), at_call=3)
        for taken in ((), (Deed(Verb.WRITE, kept=1),), (Deed(Verb.WRITE),)):
            history = play(clear_directory(), late, *taken, Deed(Verb.ABANDON), Deed(Verb.UNDO), Deed(Verb.UNDO))
            assert history.interruptions == 1
            assert (history.logged_state is LoggedState.UNDONE) == (not taken)

    @pytest.mark.parametrize("make", FILES)
    def test_what_happened_is_not_given_up_without_the_attempt(self, make: Callable[[], Subject]) -> None:
        happened = (Deed(Verb.EXECUTE), Deed(Verb.EXECUTE), Deed(Verb.LOSE))
        history = play(make(), *happened, Deed(Verb.ABANDON), Deed(Verb.UNDO))
        assert history.logged_state is LoggedState.ABANDONING
        history.act(Deed(Verb.WRITE))
        history.act(Deed(Verb.UNDO))
        assert history.logged_state is LoggedState.UNDONE
        assert list_at_name(history.disk) == history.guests
