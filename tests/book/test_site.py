"""The built site, opened in Chromium with everything beyond this machine out of reach."""

import os
import re
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe

import browser
import build_book

ROOT = Path(__file__).resolve().parent.parent.parent
SMOKE = ROOT / "_build" / "smoke"
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
DOCUMENTS = [TOC["root"], *(chapter["file"] for part in TOC["parts"] for chapter in part["chapters"])]
CHAPTERS = [name for name in DOCUMENTS if re.match(r"book/\d\d_", name)]
PAGES = [f"{name}.html" for name in [*DOCUMENTS, "search", "genindex"]]
LIMIT = 5_000_000
# What axe-core finds in the theme itself: the label of its search button, and the title in its sidebar outside every landmark.
THEME_FAULTS = {("button-name", "search-button"), ("region", "sidebar-primary-item")}

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.ABSENT)


@pytest.fixture(scope="module")
def site() -> Path:
    """The site in MON_SITE, else one that `make book` left and that is up to date, else one built now with the smoke profile."""
    if os.environ.get("MON_SITE"):
        return Path(os.environ["MON_SITE"]).resolve()
    for output in (ROOT, SMOKE):
        if build_book.is_fresh(output):
            return build_book.site_of(output)
    return build_book.build(SMOKE, profile="smoke")


@pytest.fixture(scope="module")
def base(site):
    with browser.served(site) as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    with browser.launched() as running:
        yield running


@dataclass
class Visit:
    """What one look at a page found: on a desktop, in light and in dark, and on a phone."""

    title: str
    traffic: browser.Traffic
    tex: list[str]
    alt: list[str]
    notes: list[str]
    stops: list[str]
    themes: dict[str, str]
    axe: dict[str, list[str]]
    wide: list[str]


@pytest.fixture(scope="module")
def visit(chromium, base):
    """A function that opens a page once, however many tests ask about it."""

    @cache
    def look(page: str) -> Visit:
        with browser.opened(chromium, base, page) as (tab, traffic):
            facts = Visit(
                title=tab.title(),
                traffic=deepcopy(traffic),  # axe-core fetches style sheets by itself later
                tex=tab.evaluate(browser.BAD_TEX) + tab.evaluate(browser.EMPTY_FORMULAS),
                alt=tab.evaluate(browser.POOR_ALT),
                notes=tab.locator(".afm-note").all_text_contents(),
                stops=tab.evaluate(STOPS),
                themes={},
                axe={},
                wide=[],
            )
            tab.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
            for theme in ("light", "dark"):
                browser.set_theme(tab, theme)
                facts.themes[theme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
                facts.axe[theme] = _axe(tab)
            tab.set_viewport_size(browser.PHONE)
            tab.wait_for_timeout(300)
            facts.wide = tab.evaluate(browser.TOO_WIDE) + tab.evaluate(browser.CUT_OFF)
        return facts

    return look


def _axe(tab) -> list[str]:
    found = []
    for fault in Axe().run(tab).response["violations"]:
        for node in fault["nodes"]:
            where = f"{node['target']} {node['html']}"
            if fault["id"] == "empty-table-header" and tab.locator(node["target"][0]).locator("math").count():
                continue  # a formula, which screen readers read as MathML and axe-core does not
            if not any(fault["id"] == name and part in where for name, part in THEME_FAULTS):
                found.append(f"{fault['id']} ({fault['help']}): {where[:300]} {node.get('failureSummary', '')[:300]}")
    return found


# Formulas that the tab key stops at although they fit, since enableMenu would make every formula one.
STOPS = """() => [...document.querySelectorAll("mjx-container[tabindex]")]
  .filter((e) => e.scrollWidth <= e.clientWidth).map((e) => e.textContent.slice(0, 80))"""


@pytest.mark.parametrize("page", PAGES)
def test_page(visit, page):
    """Nothing is asked of other machines, nothing fails or complains, formulas are set, images described, the page is light."""
    seen = visit(page)
    assert seen.title
    assert not seen.traffic.outside, "the page asks for something beyond this machine"
    assert not seen.traffic.failed
    assert not seen.traffic.complaints
    assert not seen.tex
    assert not seen.alt
    assert not seen.notes, "an interactive figure did not start"
    assert not seen.stops
    assert 10_000 < seen.traffic.weight < LIMIT


@pytest.mark.parametrize("page", PAGES)
def test_page_on_a_phone(visit, page):
    """On a screen of 390 pixels the page does not scroll sideways, and what is wider scrolls by itself."""
    wide = visit(page).wide
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_is_accessible(visit, page, theme):
    """axe-core finds nothing but the faults of the theme."""
    seen = visit(page)
    assert seen.themes["light"] != seen.themes["dark"]
    assert not seen.axe[theme], "\n".join(seen.axe[theme])


def _controls(view):
    return view.locator("input[type=range]:visible, [role=slider]:visible")


@pytest.mark.parametrize("page", CHAPTERS)
def test_every_slider_changes_the_picture(chromium, base, page):
    """Each slider answers to the keyboard and to the mouse, and the figure changes with it."""
    with browser.opened(chromium, base, f"{page}.html") as (tab, traffic):
        views = tab.locator(".afm-view")
        assert views.count() >= 1, "a chapter has an explorable"
        assert tab.locator(".afm-view[data-ready]").count() == views.count()
        for view in views.all():
            view.scroll_into_view_if_needed()
            controls = _controls(view)
            assert controls.count() >= 1, "an explorable has a slider"
            for control in controls.all():
                move_by_keyboard(view, control)
                move_by_mouse(view, control)
        assert not traffic.complaints


def _name(control) -> str:
    return control.evaluate("(e) => e.ariaLabel || e.labels?.[0]?.textContent.trim() || e.outerHTML.slice(0, 120)")


def _value(control) -> str:
    return control.evaluate("(e) => e.value ?? `${e.getAttribute('aria-valuenow')} ${e.getAttribute('aria-valuetext')}`")


def move_by_keyboard(view, control) -> None:
    """Press the arrow away from the end of the slider until the picture changes; a few steps have to be enough."""
    control.focus()
    value, before = _value(control), browser.picture(view)
    at_end = control.evaluate("(e) => Number(e.value ?? e.ariaValueNow) >= Number(e.max ?? e.ariaValueMax)")
    for _ in range(10):
        control.press("ArrowLeft" if at_end else "ArrowRight")
        if browser.picture(view) != before:
            break
    assert _value(control) != value, f"the slider {_name(control)!r} does not answer to the arrow keys"
    assert browser.picture(view) != before, f"the arrow keys move the slider {_name(control)!r} and the picture stays"


def move_by_mouse(view, control) -> None:
    """Press the mouse on the slider's track, away from its value, and drag on."""
    control.scroll_into_view_if_needed()
    before = browser.picture(view)
    value = _value(control)
    box = control.bounding_box()
    mouse = view.page.mouse
    if control.evaluate("(e) => e.tagName") == "INPUT":
        part = control.evaluate("(e) => (e.value - e.min) / (e.max - e.min)")
        start, end = (0.75, 0.9) if part < 0.5 else (0.25, 0.1)
        points = [(box["x"] + share * box["width"], box["y"] + box["height"] / 2) for share in (start, end)]
    else:
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        points = [middle, (middle[0] + 25, middle[1] - 25)]
    mouse.move(*points[0])
    mouse.down()
    mouse.move(*points[1], steps=4)
    mouse.up()
    assert _value(control) != value, f"the slider {_name(control)!r} does not answer to the mouse"
    assert browser.picture(view) != before, f"the mouse moves the slider {_name(control)!r} and the picture stays"


@pytest.mark.parametrize("page", CHAPTERS)
def test_explorables_can_be_read(chromium, base, page):
    """A figure has a name and a readout, and turns dark with html[data-theme], ground and ink, without a reload."""
    with browser.opened(chromium, base, f"{page}.html") as (tab, _):
        for view in tab.locator(".afm-view").all():
            assert view.locator("[aria-live], output").count() >= 1, "no live readout"
            assert view.locator("[aria-live], output").first.inner_text().strip(), "the readout is empty at first"
            assert view.evaluate(UNNAMED) == []
            looks = {}
            for theme in ("light", "dark"):
                browser.set_theme(tab, theme)
                looks[theme] = view.evaluate(GROUND), view.evaluate(INK), browser.picture(view)
            assert looks["dark"][0] < 0.2 < 0.7 < looks["light"][0], "the ground of the figure does not follow the theme"
            assert looks["dark"][1:] != looks["light"][1:], "the ink of the figure does not follow the theme"


# Pictures without a name, outermost elements only.
UNNAMED = """(view) => [...view.querySelectorAll("canvas, svg")]
  .filter((e) => !e.parentElement.closest("svg") && !e.closest("[aria-hidden=true]"))
  .filter((e) => !e.ariaLabel && !e.hasAttribute("aria-labelledby") && !e.querySelector("title"))
  .map((e) => e.outerHTML.slice(0, 120))"""


# The brightness, from 0 to 1, of the ground that a figure stands on.
GROUND = """(view) => {
  for (let e = view.querySelector("canvas, svg") ?? view; e; e = e.parentElement) {
    const [r, g, b, a = 1] = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
    if (a > 0) return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
  }
  return 1;
}"""
# The colours that style sheets give to the marks of a drawing.
INK = """(view) => [...view.querySelectorAll("svg *")].map((e) => getComputedStyle(e).stroke + getComputedStyle(e).fill)"""


def test_the_theme_button_switches_to_dark(chromium, base):
    with browser.opened(chromium, base, f"{CHAPTERS[0]}.html") as (tab, _):
        seen = {tab.evaluate("document.documentElement.dataset.theme")}
        for _ in range(3):
            tab.locator("button.theme-switch-button:visible").first.click()
            seen.add(tab.evaluate("document.documentElement.dataset.theme"))
        assert seen == {"light", "dark"}


def test_search_finds_peaceman_rachford(chromium, base):
    with browser.opened(chromium, base, "search.html?q=Peaceman-Rachford") as (tab, traffic):
        tab.locator("#search-results li a").first.wait_for(timeout=15_000)
        found = tab.locator("#search-results li a").evaluate_all("(links) => links.map((link) => link.getAttribute('href'))")
        assert any("03_splitting" in link for link in found)
        assert not traffic.outside


@pytest.mark.parametrize("page", CHAPTERS)
def test_chapter_works_from_a_file(chromium, site, page):
    """Without any server, formulas are set in MathJax's own letters and explorables run."""
    with browser.opened(chromium, site.as_uri(), f"{page}.html") as (tab, traffic):
        assert not traffic.outside
        assert not traffic.complaints
        assert tab.locator("mjx-container").count() > 0
        assert tab.evaluate(browser.BAD_TEX) == []
        assert tab.evaluate("[...document.fonts].some((font) => font.family.startsWith('MJX') && font.status === 'loaded')")
        view = tab.locator(".afm-view[data-ready]").first
        move_by_keyboard(view, _controls(view).first)


def test_the_front_page_is_where_the_site_starts(chromium, base):
    tab = chromium.new_page()
    tab.goto(f"{base}/index.html")
    tab.wait_for_url("**/book/index.html")
    assert tab.locator("h1").first.inner_text().startswith("Monotone operators")
    tab.close()
