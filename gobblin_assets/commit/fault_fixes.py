"""What a person can do about a step that can't be done, at given names: what each way out does then."""

from typing import Final

_REPLACED: Final = "the next run replaces that file by the source's, and keeps it in the trash for trash_keep_s"
_COMPARED: Final = "the next run compares both sides again"
_ONLY_MOVED_BACK: Final = "resuming helps only if the planned file is moved back, which a copy of it is not"

STRANGER_AT_FREE_NAME: Final = f"Move that file elsewhere and resume. Or abandon: {_REPLACED}."

STRANGER_ON_THE_WAY: Final = f"Move that away and resume. Or abandon: {_COMPARED}."

STRANGER_IN_PLACE_OF_OLD: Final = f"Abandon: {_REPLACED}; {_ONLY_MOVED_BACK}."

OLD_IS_GONE: Final = f"Abandon: {_COMPARED}; {_ONLY_MOVED_BACK}."
