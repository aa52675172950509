"""The built site in Chromium: a server, a browser that may not leave the machine, and what a page shows."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)
ABSENT = "No browser: install Chromium (Debian, Ubuntu: apt-get install chromium), or set CHROMIUM to its path."
if CHROMIUM is None and os.environ.get("MON_REQUIRE_BROWSER"):
    raise RuntimeError(ABSENT)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}

# MathJax has set every formula and every explorable has drawn (or said why it did not).
SETTLED = """async () => {
  if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise;
  const start = performance.now();
  const views = [...document.querySelectorAll(".afm-view")];
  const waiting = () => views.some((view) => !view.dataset.ready && !view.querySelector(".afm-note"));
  while (waiting() && performance.now() - start < 10000) await new Promise((done) => setTimeout(done, 50));
  await document.fonts.ready;
}"""

BAD_TEX = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const stray = document.createTreeWalker(document.querySelector(".bd-article") ?? document.body, NodeFilter.SHOW_TEXT);
  const dollars = [];
  while (stray.nextNode()) {
    const { data, parentElement } = stray.currentNode;
    if (/\\$|\\\\\\(|\\\\\\[/.test(data) && !parentElement.closest("pre, code, script, style, mjx-container")) dollars.push(data);
  }
  return [
    ...all("mjx-merror").map((e) => "error: " + (e.getAttribute("title") ?? e.textContent)),
    ...all("mjx-mtext[style*=red], mjx-mtext [style*=red]").map((e) => "undefined macro: " + e.textContent),
    ...dollars.map((text) => "not typeset: " + text.trim().slice(0, 80)),
  ];
}"""

TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) <= width) return [];
  const scrolls = (e) => { for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
    if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(p).overflowX)) return true; return false; };
  const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width + 1 && !scrolls(e));
  return ["the page scrolls sideways", ...wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 160))];
}"""

# Text that lies beyond the right edge, where nothing scrolls to it: a hidden overflow cuts it off without a trace.
CUT_OFF = """() => {
  const width = document.documentElement.clientWidth;
  const lost = (e) => {
    const right = e.getBoundingClientRect().right;
    for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) {
      const how = getComputedStyle(p).overflowX;
      if (["auto", "scroll"].includes(how) && p.closest(".bd-article")) return false;
      if (how !== "visible" && right > p.getBoundingClientRect().right + 1) return true;
    }
    return right > width + 1;
  };
  const shown = (e) => e.getClientRects().length && !["math", "svg"].includes(e.tagName.toLowerCase());
  return [...document.querySelectorAll(".bd-article :is(mjx-container, code, pre, a, table, img)")]
    .filter((e) => shown(e) && lost(e))
    .slice(0, 5).map((e) => "cut off at the edge: " + e.outerHTML.slice(0, 160));
}"""

# Formulas that show nothing.
EMPTY_FORMULAS = """() => [...document.querySelectorAll(".bd-article :is(.math, .tied)")]
  .filter((e) => !e.querySelector("mjx-container mjx-math *"))
  .slice(0, 5).map((e) => "a formula without content: " + e.parentElement.outerHTML.slice(0, 160))"""

POOR_ALT = """() => [...document.querySelectorAll(".bd-article img")]
  .filter((e) => (e.getAttribute("alt") ?? "").trim().length < 15 || e.alt.includes("_images/"))
  .map((e) => e.getAttribute("src") + " has alt text " + JSON.stringify(e.getAttribute("alt")))"""

# What a figure shows, without its controls and its text: the pixels of canvases and the marks of drawings.
PICTURE = """(view) => [...view.querySelectorAll("canvas, svg")].map((e) => e.tagName === "CANVAS" ? e.toDataURL(): e.outerHTML)"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def served(folder: Path):
    """Serve a folder on this machine and yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def launched():
    """Yield a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Traffic:
    """What a page asked for and what it complained about."""

    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    weight: int = 0


@contextmanager
def opened(browser, base: str, page: str, viewport: dict[str, int] = DESKTOP):
    """Open a page that cannot reach beyond `base`, and yield it, settled, with its traffic."""
    context = browser.new_context(viewport=viewport, color_scheme="light")
    traffic = Traffic()
    responses = []

    def judge(route) -> None:
        if route.request.url.startswith((base, "data:", "blob:")):
            route.continue_()
        else:
            traffic.outside.append(route.request.url)
            route.abort()

    def hear(message) -> None:
        if message.type in ("error", "warning"):
            traffic.complaints.append(f"{message.type}: {message.text}")

    def receive(response) -> None:
        responses.append(response)
        if response.status >= 400:
            traffic.failed.append(f"{response.url}: {response.status}")

    context.route("**/*", judge)
    tab = context.new_page()
    tab.on("console", hear)
    tab.on("pageerror", lambda error: traffic.complaints.append(f"exception: {error}"))
    tab.on("requestfailed", lambda request: traffic.failed.append(f"{request.url}: {request.failure}"))
    tab.on("response", receive)
    try:
        tab.goto(f"{base}/{page}", wait_until="load")
        tab.evaluate(SETTLED)
        if base.startswith("http"):
            traffic.weight = sum(len(response.body()) for response in responses if response.status == 200)
        yield tab, traffic
    finally:
        context.close()


def set_theme(tab, theme: str) -> None:
    """Switch the page to light or dark, as its button does, and wait for the transition."""
    tab.evaluate("(theme) => { Object.assign(document.documentElement.dataset, { theme, mode: theme }); }", theme)
    tab.wait_for_timeout(400)


def picture(view) -> list[str]:
    """Return what a figure shows, once two looks in a row agree."""
    before = view.evaluate(PICTURE)
    for _ in range(60):
        view.page.wait_for_timeout(50)
        after = view.evaluate(PICTURE)
        if after == before:
            return after
        before = after
    raise AssertionError("the figure never stands still, so no test can tell whether a control changed it")
