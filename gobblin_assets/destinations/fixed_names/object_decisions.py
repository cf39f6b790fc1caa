"""Decisions about a step at a given name of an object store, by a look at its object: one table for every process.

A store has no rename, so nothing can be captured. What stops a paused process is a **token**: an upload that was begun
before, becomes the object at the name by its completion, and is used up by that. Whoever gives a sequence up aborts its
tokens first, and looks at the names then. The tables are those of the exhaustive model that
``tests/models/object_names.py`` searches.
"""

from enum import StrEnum


class Stands(StrEnum):
    """What stands at a name. NEW: the step's own version, by the id in its metadata, its length, and its known ETag.
    OLD: what was planned to be there, by its ETag. MARKER: a mark of this step that says that nothing is to be here.
    OTHER: something else.
    """

    NOTHING = "nothing"
    NEW = "new"
    OLD = "old"
    MARKER = "marker"
    OTHER = "other"


class ObjectAct(StrEnum):
    """One act on a name, or an answer that ends the work on the step.

    COMPLETE: the staged upload becomes the object, after a copy of the old version was put aside. CLEAR: the mark is
    removed. USE_UP: the staged upload is aborted, because it has no work left. Of an undo, MARK: a mark takes the place
    of the step's version. PUT_BACK: the copy that was put aside becomes the object again. CONFLICT: something else
    stands at the name. LOST: the staged upload is gone, and has not become the object.
    """

    DONE = "done"
    COMPLETE = "complete"
    CLEAR = "clear"
    USE_UP = "use up"
    MARK = "mark"
    PUT_BACK = "put back"
    CONFLICT = "conflict"
    LOST = "lost"

    @property
    def is_answer(self) -> bool:
        return self in (ObjectAct.DONE, ObjectAct.CONFLICT, ObjectAct.LOST)


def decide_place_object(name: Stands) -> ObjectAct:
    """Publish an object at a name that was free."""
    if name is Stands.NEW:
        return ObjectAct.DONE
    return ObjectAct.COMPLETE if name is Stands.NOTHING else ObjectAct.CONFLICT


def decide_replace_object(name: Stands) -> ObjectAct:
    """Publish an object in the place of the old version."""
    if name is Stands.NEW:
        return ObjectAct.DONE
    return ObjectAct.COMPLETE if name is Stands.OLD else ObjectAct.CONFLICT


def decide_remove_object(name: Stands, *, is_pending: bool) -> ObjectAct:
    """Take the old version away: the staged upload, a mark, takes its place, and is removed by its own ETag.

    A DELETE of the old version would have no token: a paused process could send it after a later publication of the
    same bytes, which have the same ETag. ``is_pending``: whether the upload was there, asked before the look.
    """
    if name is Stands.MARKER:
        return ObjectAct.CLEAR
    if is_pending:
        if name is Stands.OLD:
            return ObjectAct.COMPLETE
        # While it is there, a paused process could still put it in the place of a later version.
        return ObjectAct.USE_UP if name is Stands.NOTHING else ObjectAct.CONFLICT
    # Whatever else stands at the name came after the removal.
    return ObjectAct.LOST if name is Stands.OLD else ObjectAct.DONE


def decide_undo_object(name: Stands, *, has_old: bool, removes: bool, has_copy: bool) -> ObjectAct:
    """Take a step back, after its uploads were aborted. ``has_old``: a version stood at the name before.

    ``removes``: the step takes the old version away. ``has_copy``: the old version was put aside. DONE: nothing of the
    step is at the name.
    """
    if not has_old:
        return {Stands.NEW: ObjectAct.MARK, Stands.MARKER: ObjectAct.CLEAR}.get(name, ObjectAct.DONE)
    if name in (Stands.OLD, Stands.OTHER):
        return ObjectAct.DONE
    if name is Stands.NOTHING and not removes:
        # A stranger took the step's version away. Only a person knows whether the old one shall come back.
        return ObjectAct.CONFLICT
    return ObjectAct.PUT_BACK if has_copy else ObjectAct.CONFLICT
