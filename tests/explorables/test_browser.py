"""Each explorable alone in Chromium, with a model as JupyterLab's: narrow screens, keyboard, themes, clean-up."""

from __future__ import annotations

import json

import pytest
from explorables.samples import NAMES, make, state

import browser

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.ABSENT)

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>One explorable</title>
<link rel="icon" href="data:,"><style>body { margin: 0 }</style><style>%(css)s</style>
<main><h1>One explorable</h1><div id="here"></div></main>
<script type="module">
const values = %(values)s, listeners = {};
window.model = {
  get: (name) => values[name],
  set(name, value) {
    if (values[name] === value) return;
    values[name] = value;
    for (const f of listeners["change:" + name] ?? []) f();
  },
  save_changes() {},
  on: (name, f) => (listeners[name] ??= new Set()).add(f),
  off: (name, f) => listeners[name]?.delete(f),
};
window.listening = () => Object.values(listeners).reduce((sum, set) => sum + set.size, 0);
window.heard = 0;
document.body.addEventListener("keydown", () => window.heard++);
const url = URL.createObjectURL(new Blob([%(module)s], { type: "text/javascript" }));
window.stop = (await import(url)).default.render({ model: window.model, el: document.getElementById("here") });
document.body.dataset.ready = "";
</script></html>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorables")
    for name in NAMES:
        widget = make(name)
        values = json.dumps(state(widget))
        page = PAGE % {"css": widget._css, "values": values, "module": json.dumps(widget._esm)}
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    with browser.served(folder) as base, browser.launched() as chromium:
        yield chromium, base


@pytest.fixture
def shown(site, request):
    chromium, base = site
    viewport = {"width": 330, "height": 800}
    with browser.opened(chromium, base, f"{request.param}.html", viewport=viewport) as (tab, traffic):
        tab.locator("body[data-ready]").wait_for()
        yield tab, traffic


@pytest.mark.parametrize("shown", NAMES, indirect=True)
def test_on_a_narrow_screen(shown):
    """Nothing is cut off, every control answers to the keyboard alone, and the page never hears the keys."""
    tab, traffic = shown
    view = tab.locator(".mon-explorable")
    assert tab.evaluate(browser.TOO_WIDE) == []
    assert view.get_attribute("aria-label")
    assert view.locator("[aria-live=polite]").inner_text().strip()
    for control in view.locator("input[type=range], [role=slider]").all():
        assert control.get_attribute("aria-label")
        assert control.get_attribute("aria-valuetext")
        before, words = browser.picture(view), control.get_attribute("aria-valuetext")
        control.press("ArrowRight")
        control.press("ArrowRight")
        assert browser.picture(view) != before
        assert control.get_attribute("aria-valuetext") != words
    assert tab.evaluate("window.heard") == 0
    assert not traffic.complaints
    assert not traffic.outside


@pytest.mark.parametrize("shown", NAMES, indirect=True)
def test_follows_its_model_and_cleans_up(shown):
    """A trait set from Python moves the slider and the picture; removing the view leaves nothing behind."""
    tab, traffic = shown
    view = tab.locator(".mon-explorable")
    slider = view.locator("input[type=range]").last
    name, target = slider.get_attribute("data-name"), slider.evaluate("(e) => Number(e.max)")
    before = browser.picture(view)
    value = tab.evaluate("([name, max]) => model.get(name) + 1", [name, target])
    tab.evaluate("([name, value]) => model.set(name, value)", [name, value])
    assert browser.picture(view) != before
    assert tab.evaluate("window.listening()") > 0
    tab.evaluate("window.stop()")
    assert view.count() == 0
    assert tab.evaluate("window.listening()") == 0
    assert not traffic.complaints


@pytest.mark.parametrize("shown", ["SplittingPlane"], indirect=True)
@pytest.mark.parametrize(
    ("code", "dark"),
    [
        ("document.documentElement.dataset.theme = 'dark'", True),
        ("document.body.dataset.jpThemeLight = 'false'", True),
        ("document.documentElement.setAttribute('theme', 'dark')", True),
        ("0", False),
    ],
)
def test_theme(shown, code, dark):
    """The book's theme, JupyterLab's and Colab's are followed; a light page stays light on a dark system and back."""
    tab, _ = shown
    ground = "getComputedStyle(document.querySelector('.mon-explorable')).backgroundColor"
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"
    tab.evaluate(code)
    assert (tab.evaluate(ground) == "rgb(20, 24, 30)") is dark
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(ground) == "rgb(20, 24, 30)"  # nobody speaks for light, so the system does
    tab.evaluate("document.documentElement.dataset.theme = 'light'; document.documentElement.removeAttribute('theme')")
    tab.evaluate("delete document.body.dataset.jpThemeLight")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("shown", ["NaiveVersusSplitting"], indirect=True)
def test_play_walks_through_the_steps(shown):
    tab, _ = shown
    play = tab.get_by_role("button", name="Play")
    before = tab.evaluate("model.get('k')")
    play.click()
    tab.wait_for_function("(k) => model.get('k') >= k + 2", arg=before)
    tab.get_by_role("button", name="Pause").click()
    assert tab.get_by_role("button", name="Play").count() == 1
    stopped = tab.evaluate("model.get('k')")
    tab.wait_for_timeout(800)
    assert tab.evaluate("model.get('k')") == stopped


@pytest.mark.parametrize("shown", ["DigitSolve"], indirect=True)
def test_choosing_a_digit(shown):
    tab, _ = shown
    view = tab.locator(".mon-explorable")
    before = browser.picture(view)
    tab.get_by_role("button", name="digit 3 of 3, a 2").press("Enter")
    assert tab.evaluate("model.get('digit')") == 2
    assert view.locator("[aria-pressed=true]").get_attribute("aria-label") == "digit 3 of 3, a 2"
    assert browser.picture(view) != before


@pytest.mark.parametrize("shown", ["SplittingPlane"], indirect=True)
def test_a_point_is_dragged(shown):
    tab, _ = shown
    handle = tab.locator(".handle")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    start = tab.evaluate("model.get('start')")
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x - 60, y + 40, steps=3)
    tab.mouse.up()
    end = tab.evaluate("model.get('start')")
    assert end[0] < start[0] - 0.3
    assert end[1] < start[1] - 0.2
    box = handle.bounding_box()
    assert abs(box["x"] + box["width"] / 2 - (x - 60)) < 2
