// A formula that is wider than the page scrolls by itself, and then the keyboard has to reach it.
(() => {
  "use strict";
  function mark() {
    for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
      if (formula.scrollWidth > formula.clientWidth + 1) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  }
  window.addEventListener("load", () => {
    Promise.resolve(window.MathJax?.startup?.promise).then(mark);
    window.addEventListener("resize", mark);
  });
})();
