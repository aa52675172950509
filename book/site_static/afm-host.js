// Runs the book's interactive figures on a page without a kernel.
//
// An explorable is an anywidget: a model (a bag of values) and an ES module with render({model, el}). In JupyterLab the widget
// machinery provides both. On the site, myst-nb writes the state of every model into the page, and this script does the rest.
// A classic deferred script, so that it also runs from file://.
(() => {
  "use strict";
  const STATE = 'script[type="application/vnd.jupyter.widget-state+json"]';
  const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';

  // Binary values travel beside the state, as base64 or hex, with the path where each belongs.
  function decode({ state, buffers = [] }) {
    const values = structuredClone(state);
    for (const { path, encoding, data } of buffers) {
      const bytes = encoding === "base64"
        ? Uint8Array.from(atob(data), (c) => c.charCodeAt(0))
        : Uint8Array.from(data.match(/../g) ?? [], (pair) => parseInt(pair, 16));
      const owner = path.slice(0, -1).reduce((node, key) => node[key], values);
      owner[path.at(-1)] = new DataView(bytes.buffer);
    }
    return values;
  }

  // The part of the anywidget model that a figure may use. There is no kernel: save_changes and send have nobody to talk to.
  class Model {
    #values;
    #listeners = new Map();
    constructor(values) { this.#values = values; }
    get(name) { return this.#values[name]; }
    set(name, value) {
      if (Object.is(this.#values[name], value)) return;
      this.#values[name] = value;
      this.#emit(`change:${name}`, value);
      this.#emit("change");
    }
    save_changes() {}
    send() {}
    on(names, listener) {
      for (const name of names.split(/\s+/)) {
        if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
        this.#listeners.get(name).add(listener);
      }
    }
    off(names, listener) {
      if (names == null) { this.#listeners.clear(); return; }
      for (const name of names.split(/\s+/)) {
        if (listener == null) this.#listeners.delete(name);
        else this.#listeners.get(name)?.delete(listener);
      }
    }
    #emit(name, value) {
      for (const listener of [...(this.#listeners.get(name) ?? [])]) listener(this, value);
    }
  }

  async function start(entry) {
    const values = decode(entry);
    const model = new Model(values);
    const url = URL.createObjectURL(new Blob([values._esm], { type: "text/javascript" }));
    let widget;
    try {
      widget = (await import(url)).default;
    } finally {
      URL.revokeObjectURL(url);
    }
    if (typeof widget === "function") widget = await widget();
    await widget.initialize?.({ model });
    return { widget, model };
  }

  function addStyle(css) {
    if (!css || [...document.querySelectorAll("style.afm")].some((style) => style.textContent === css)) return;
    const style = document.createElement("style");
    style.className = "afm";
    style.textContent = css;
    document.head.append(style);
  }

  function say(element, text) {
    const note = document.createElement("p");
    note.className = "afm-note";
    note.textContent = text;
    element.replaceChildren(note);
  }

  function run() {
    const tag = document.querySelector(STATE);
    const models = tag ? JSON.parse(tag.textContent).state : {};
    const started = new Map(); // two views of one model share it
    for (const view of document.querySelectorAll(VIEW)) {
      const id = JSON.parse(view.textContent).model_id;
      const entry = models[id];
      if (!entry) continue;
      const element = document.createElement("div");
      element.className = "afm-view";
      view.after(element);
      if (!entry.state._esm) {
        say(element, "This control needs a running kernel: open the chapter in JupyterLab to use it.");
        continue;
      }
      addStyle(entry.state._css);
      if (!started.has(id)) started.set(id, start(entry));
      started.get(id)
        .then(({ widget, model }) => widget.render?.({ model, el: element, signal: new AbortController().signal }))
        .then(() => { element.dataset.ready = "true"; })
        .catch((error) => {
          console.error(error);
          say(element, `This interactive figure did not start: ${error.message}`);
        });
    }
  }

  run();
})();
