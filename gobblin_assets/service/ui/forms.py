"""Forms that browsers send, as texts by the names of their fields."""

from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from gobblin_assets.service.api.problems import MalformedRequestError

FIELDS_MAX: Final = 20_000


class SentForm:
    """The fields of a form. Of a name that was sent several times, ``texts`` has all, and ``text`` the last."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs
        self.fields = dict(pairs)

    def text(self, name: str) -> str:
        """Without spaces around it; "" where the form has no such field."""
        return self.fields.get(name, "").strip()

    def texts(self, name: str) -> list[str]:
        return [value.strip() for each, value in self._pairs if each == name and value.strip()]

    def has(self, name: str) -> bool:
        return name in self.fields

    def without_row(self, row: str) -> "SentForm":
        """The form without the fields of a row of a list, such as ``datasets[0]``; "" takes nothing out."""
        return SentForm([pair for pair in self._pairs if not (row and pair[0].startswith(f"{row}."))])


async def _read_form(request: Request) -> SentForm:
    try:
        # Browsers end lines in text areas by two characters.
        text = (await request.body()).decode().replace("%0D%0A", "%0A")
        return SentForm(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
    except ValueError as error:
        raise MalformedRequestError(f"the form can't be read: {error}", field="body", hint="Send it again.") from None


Form = Annotated[SentForm, Depends(_read_form)]
