"""What a page must have for people who can't see it, who see little, or who have no mouse."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

from playwright.sync_api import Locator, Page, expect

_TABS_MAX: Final = 80

_RUN_AXE: Final = """async () => {
  const { violations } = await axe.run({ resultTypes: ["violations"] });
  return violations.flatMap(({ id, impact, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id} (${impact}): ${html.slice(0, 160)}: ${failureSummary}`));
}"""

# Below a width, tables become cards, whose lines have their labels from here.
_FIND_LABELS: Final = """() => [...document.querySelectorAll("td[data-label]")].filter((cell) => {
  const heads = [...cell.closest("table").querySelectorAll("th")].map((each) => each.textContent);
  return heads[cell.cellIndex] !== cell.dataset.label;
}).map((cell) => `another label than the column's: ${cell.outerHTML.slice(0, 160)}`)"""

# A field for a date shows the focus within itself, at each of its parts.
_HAS_OUTLINE: Final = """() => {
  if (document.activeElement.type === "date") return true;
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


@cache
def _read_axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def find_faults(page: Page) -> list[str]:
    """All that axe-core has to say of the page, in the colours and at the width that it has now."""
    if not page.evaluate("'axe' in window"):
        # Not as an element of the page: its policy lets no other script in.
        page.evaluate(_read_axe())
    found: list[str] = page.evaluate(_RUN_AXE)
    mislabelled: list[str] = page.evaluate(_FIND_LABELS)
    return found + mislabelled


def measure_overflow(page: Page) -> int:
    """How many pixels the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def tab_to(page: Page, target: Locator) -> None:
    """Press the tabulator until the target has the focus, which must be seen at each stop."""
    for _ in range(_TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            continue
        assert page.evaluate(_HAS_OUTLINE), page.evaluate("document.activeElement.outerHTML")
        if target.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"no tabulator leads to {target}")


def find_labelled(page: Page, label: str) -> Locator:
    """The fields of a label that begins with these words.

    A required field has an asterisk in its label, and a node its description. A list that arrives later may have a
    longer word of the same beginning: "Tables of shop" is no "Table".
    """
    return page.get_by_role("main").get_by_label(re.compile(rf"^\s*{re.escape(label)}\b"))


class Typist:
    """Fills fields by their labels, and counts those that a person would have to fill."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.typed: list[str] = []

    def type(self, label: str, value: str) -> None:
        self._find(label).fill(value)

    def choose(self, label: str, value: str) -> None:
        self._find(label).select_option(value)

    def check(self, label: str) -> None:
        self._find(label).check()

    def _find(self, label: str) -> Locator:
        self.typed.append(label)
        found = find_labelled(self._page, label)
        expect(found).to_have_count(1)
        return found
