"""What a page must have for people who can't see it, who see little, or who have no mouse."""

import re
from typing import Any, Final

from playwright.sync_api import Locator, Page, expect

CONTRAST_MIN: Final = 4.5

_TABS_MAX: Final = 80

# Of each element with a text of its own: the contrast of its colour with the nearest background that covers.
_FIND_FAULTS: Final = """(contrastMin) => {
  const faults = [];
  const all = (words) => [...document.querySelectorAll(words)];
  const say = (element, what) => faults.push(`${what}: ${element.outerHTML.slice(0, 160)}`);
  if (!document.documentElement.lang) faults.push("the page has no language");
  if (!document.title.includes(" ")) faults.push("the page has no title");
  if (all("h1").length !== 1) faults.push(`${all("h1").length} headings of the first level`);
  for (const words of ["header", "nav", "main"]) {
    if (all(words).length !== 1) faults.push(`${all(words).length} of ${words}`);
  }
  let level = 1;
  for (const heading of all("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(heading, "a level of headings is left out");
    level = own;
  }
  const ids = all("[id]").map((each) => each.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`two elements have the id ${id}`);
  for (const control of all("input:not([type=hidden]), select, textarea")) {
    const hasLabel = [...control.labels].some((each) => each.textContent.trim());
    if (!hasLabel && !control.getAttribute("aria-label")) say(control, "no label");
  }
  for (const name of ["aria-describedby", "aria-labelledby"]) {
    for (const element of all(`[${name}]`)) {
      const missing = element.getAttribute(name).trim().split(/\\s+/).filter((id) => !document.getElementById(id));
      if (missing.length) say(element, `no ${missing}`);
    }
  }
  for (const element of all("a, button, summary")) if (!element.textContent.trim()) say(element, "no text");
  for (const cell of all("td[data-label]")) {
    const heads = [...cell.closest("table").querySelectorAll("th")].map((each) => each.textContent);
    if (heads[cell.cellIndex] !== cell.dataset.label) say(cell, "another label than the column's");
  }

  const read = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = colour.map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = read(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const check = (element, colour, what) => {
    const [dim, bright] = [light(read(colour)), light(background(element))].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dim + 0.05);
    if (contrast < contrastMin) say(element, `${what} of contrast ${contrast.toFixed(2)}`);
  };
  for (const element of all("body *")) {
    if (!element.checkVisibility()) continue;
    const texts = [...element.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());
    if (texts.length) check(element, getComputedStyle(element).color, "text");
    if (element.placeholder) check(element, getComputedStyle(element, "::placeholder").color, "a placeholder");
  }
  return faults;
}"""

# A field for a date shows the focus within itself, at each of its parts.
_HAS_OUTLINE: Final = """() => {
  if (document.activeElement.type === "date") return true;
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


def find_faults(page: Page) -> list[str]:
    """In the colours that the page has now."""
    found: list[str] = page.evaluate(_FIND_FAULTS, CONTRAST_MIN)
    return found


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
        # A required field has an asterisk in its label, and a node its description.
        found: Any = self._page.get_by_role("main").get_by_label(re.compile(rf"^\s*{re.escape(label)}\b"))
        expect(found).to_have_count(1)
        return found  # type: ignore[no-any-return]  # the locator of one element
