// The kit: sliders, plots with draggable points, and a spoken readout, in plain DOM and SVG.
// Colours are CSS variables (_kit.css, _base.py), so a change of theme needs no redraw.

const SVG = "http://www.w3.org/2000/svg";
const fill = (e, attrs) => {
  for (const k in attrs) if (attrs[k] != null) e.setAttribute(k, attrs[k]);
  return e;
};
export const html = (name, attrs, ...children) => {
  const e = fill(document.createElement(name), attrs);
  e.append(...children);
  return e;
};
export const svg = (name, attrs, ...children) => {
  const e = fill(document.createElementNS(SVG, name), attrs);
  e.append(...children);
  return e;
};
export const ink = (colour) => `var(--${colour})`;
export const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (n) => "10" + [...String(n)].map((c) => RAISED[c]).join("");
// A number for a reader: fixed digits near one, powers of ten elsewhere.
export function show(x, digits = 2) {
  if (Number.isNaN(x)) return "undefined";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const a = Math.abs(x);
  if (a === 0 || (a >= 0.5 * 10 ** -digits && a < 1e4)) return x.toFixed(digits).replace("-", "−");
  const e = Math.floor(Math.log10(a));
  return (x / 10 ** e).toFixed(1).replace("-", "−") + "·" + power(e);
}

function ticks(lo, hi, count) {
  const raw = (hi - lo) / count;
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((s) => s * ten).find((s) => s >= 0.75 * raw);
  const out = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + 1e-9 * step; i++) out.push(i * step);
  return out.map((v) => [v, String(Number(v.toPrecision(6))).replace("-", "−")]);
}
function decades(lo, hi, count) {
  const [a, b] = [Math.ceil(Math.log10(lo) - 1e-9), Math.floor(Math.log10(hi) + 1e-9)];
  const skip = Math.max(1, Math.ceil((b - a) / count));
  const out = [];
  for (let e = a; e <= b; e += skip) out.push([10 ** e, e === 0 ? "1" : e === 1 ? "10" : power(e)]);
  return out;
}

// stage(model, el, title) -> ui.  Build with ui.plot, ui.slider, ui.choice, ui.toggle, ui.button; then ui.start(draw).
export function stage(model, el, title) {
  const plots = html("div", { class: "plots" });
  const controls = html("div", { class: "controls" });
  const readout = html("div", { class: "readout", role: "status", "aria-live": "polite" });
  const root = html("div", { class: "mon-explorable", role: "group", "aria-label": title }, plots, controls, readout);
  root.addEventListener("keydown", (e) => e.stopPropagation()); // JupyterLab takes the arrow keys otherwise
  el.append(root);
  const refreshers = [];
  const undo = [];
  let paint = () => {};
  const get = (k) => model.get(k);
  const put = (k, v) => {
    model.set(k, v);
    model.save_changes();
  };
  const update = () => {
    for (const f of refreshers) f();
    paint();
    for (const p of all) p.settle();
  };
  const watch = (name) => {
    model.on("change:" + name, update);
    undo.push(() => model.off("change:" + name, update));
  };
  const all = [];

  // A labelled slider for the trait `name`.  o: label, min, max, step, log (the trait is 10^slider), format, marks() -> [[value, text]].
  function slider(name, o) {
    const to = o.log ? Math.log10 : (v) => v;
    const from = o.log ? (v) => 10 ** v : (v) => v;
    const [min, max] = [to(o.min), to(o.max)];
    const step = o.step ?? (o.log ? 0.01 : (max - min) / 100);
    const format = o.format ?? ((v) => show(v, o.digits ?? 2));
    const input = html("input", { type: "range", min, max, step, "data-name": name, "aria-label": o.label });
    const value = html("span", { class: "value" });
    const marks = html("span", { class: "marks", "aria-hidden": "true" });
    const box = html("span", { class: "rail" }, input, marks);
    const label = html("label", { class: "slider" }, html("span", { class: "name" }, o.label), box, value);
    input.addEventListener("input", () => put(name, from(Number(input.value))));
    controls.append(label);
    watch(name);
    refreshers.push(() => {
      const v = get(name);
      if (Math.abs(Number(input.value) - to(v)) > step / 2 || document.activeElement !== input) input.value = to(v);
      value.textContent = format(v);
      input.setAttribute("aria-valuetext", format(v));
      marks.replaceChildren(
        ...(o.marks?.() ?? []).filter(([v]) => to(v) >= min && to(v) <= max).map(([v, text, colour]) => {
          const t = (to(v) - min) / (max - min);
          const style = `left:calc(11px + (100% - 22px) * ${t.toFixed(4)});color:${ink(colour ?? "muted")}`;
          return html("span", { style }, text);
        }),
      );
    });
    return input;
  }
  function choice(name, o) {
    const options = o.options.map(([value, text]) => html("option", { value }, text));
    const select = html("select", { "data-name": name }, ...options);
    select.addEventListener("change", () => put(name, select.value));
    controls.append(html("label", { class: "choice" }, html("span", { class: "name" }, o.label), select));
    watch(name);
    refreshers.push(() => (select.value = get(name)));
  }
  function toggle(name, o) {
    const box = html("input", { type: "checkbox", "data-name": name });
    box.addEventListener("change", () => put(name, box.checked));
    controls.append(html("label", { class: "toggle" }, box, o.label));
    watch(name);
    refreshers.push(() => (box.checked = get(name)));
  }
  function button(text, press) {
    const b = html("button", { type: "button" }, text);
    b.addEventListener("click", () => press(b));
    controls.append(b);
    return b;
  }

  // A plot.  o: label, ratio (height / width), narrow (the ratio on a phone), equal (one scale for both axes), logx, logy, xlabel, ylabel, bare, width (largest), basis
  // (the width below which panels stack), all in px.
  function plot(o) {
    const frame = svg("g", { class: "frame" });
    const inner = svg("svg", { class: "inner" });
    const over = svg("g", {});
    const picture = svg("g", { role: "img", "aria-label": o.label }, frame, inner, over);
    const outer = svg("svg", { class: "plot", role: "group", "aria-label": o.label }, picture);
    const box = html("div", { class: "panel", style: `max-width:${o.width ?? 640}px;flex-basis:${o.basis ?? 280}px` }, outer);
    plots.append(box);
    const grips = [];
    let [w, h, x, y] = [0, 0, [0, 1], [0, 1]];
    const m = o.bare ? { l: 6, r: 6, t: 6, b: 6 } : { l: 46, r: 14, t: o.ylabel ? 26 : 12, b: o.xlabel ? 44 : 26 };
    const scale = (v, [lo, hi], log) => (log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo));
    const X = (v) => scale(v, x, o.logx) * (w - m.l - m.r);
    const Y = (v) => (1 - scale(v, y, o.logy)) * (h - m.t - m.b);
    const at = ([a, b]) => [X(a), Y(b)];

    // Path through px points; a step that leaves the picture by far is cut, since browsers draw no huge coordinates.
    function path(points) {
      let [d, last] = ["", null];
      for (const p of points) {
        let q = at(p);
        if (!q.every((c) => Math.abs(c) < 4000)) {
          const v = last && [q[0] - last[0], q[1] - last[1]];
          const t = v && 3000 / Math.hypot(...v);
          if (t > 0) d += `L${(last[0] + t * v[0]).toFixed(1)} ${(last[1] + t * v[1]).toFixed(1)}`;
          last = null;
          continue;
        }
        d += `${last ? "L" : "M"}${q[0].toFixed(1)} ${q[1].toFixed(1)}`;
        last = q;
      }
      return d;
    }
    const near = (q) => q.every((c) => Math.abs(c) < 4000);
    const p = {
      // Start the picture over with these ranges; draws the frame.  xs, ys: ticks of your own, [[value, text], ...].
      clear(rx, ry, xs, ys) {
        [x, y] = [rx, ry];
        w = Math.max(240, box.clientWidth || 560);
        h = o.equal ? ((w - m.l - m.r) * (y[1] - y[0])) / (x[1] - x[0]) + m.t + m.b : w * (plots.clientWidth < 420 ? o.narrow ?? o.ratio : o.ratio);
        h = Math.round(h);
        fill(outer, { width: w, height: h, viewBox: `0 0 ${w} ${h}` });
        fill(inner, { x: m.l, y: m.t, width: w - m.l - m.r, height: h - m.t - m.b });
        fill(over, { transform: `translate(${m.l} ${m.t})` });
        for (const g of [frame, inner, over]) g.replaceChildren();
        if (o.bare) return;
        const [right, foot] = [w - m.r, h - m.b];
        const many = clamp(Math.round(w / 80), 3, 8);
        for (const [v, text] of xs ?? (o.logx ? decades : ticks)(x[0], x[1], many)) {
          const u = m.l + X(v);
          frame.append(svg("line", { class: v === 0 && !xs ? "zero" : "grid", x1: u, x2: u, y1: m.t, y2: foot }));
          frame.append(svg("text", { x: u, y: foot + 16, "text-anchor": "middle" }, text));
        }
        for (const [v, text] of ys ?? (o.logy ? decades : ticks)(y[0], y[1], clamp(Math.round(h / 60), 3, 8))) {
          const u = m.t + Y(v);
          frame.append(svg("line", { class: v === 0 ? "zero" : "grid", x1: m.l, x2: right, y1: u, y2: u }));
          frame.append(svg("text", { x: m.l - 6, y: u + 4, "text-anchor": "end" }, text));
        }
        if (o.xlabel) frame.append(svg("text", { x: right, y: h - 8, "text-anchor": "end" }, o.xlabel));
        if (o.ylabel) frame.append(svg("text", { x: 2, y: 14 }, o.ylabel));
      },
      // o: width, dash, dots (radius of a mark at each point), close, fill (0..1)
      line(points, colour, { width = 2, dash, dots, close, fill: opacity } = {}) {
        const d = path(points) + (close ? "Z" : "");
        const paint = opacity ? { fill: ink(colour), "fill-opacity": opacity } : { fill: "none" };
        const pen = { stroke: ink(colour), "stroke-width": width, "stroke-dasharray": dash, "stroke-linejoin": "round" };
        if (d) inner.append(svg("path", { d, ...paint, ...pen }));
        if (dots) for (const q of points) p.dot(q, colour, { r: dots });
      },
      dot(point, colour, { r = 4, hollow } = {}) {
        const [cx, cy] = at(point);
        if (!near([cx, cy])) return;
        const paint = { fill: hollow ? ink("ground") : ink(colour), stroke: ink(colour), "stroke-width": hollow ? 2 : 0 };
        inner.append(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r, ...paint }));
      },
      text(point, text, colour = "reference", { anchor = "start", dx = 0, dy = 0 } = {}) {
        const [u, v] = at(point);
        if (!(u > -2 && v > -2 && u < w - m.l - m.r + 2 && v < h - m.t - m.b + 2)) return;
        const style = `fill:${ink(colour)}`;
        over.append(svg("text", { class: "tag", x: u + dx, y: v + dy, "text-anchor": anchor, style }, text));
      },
      // A vertical (x) or horizontal (y) line right across.
      rule(at, colour, o = {}) {
        p.line("x" in at ? [[at.x, y[0]], [at.x, y[1]]] : [[x[0], at.y], [x[1], at.y]], colour, { width: 1.5, dash: "5 4", ...o });
      },
      raw: (node) => inner.append(node),
      at,
      describe: (text) => fill(picture, { "aria-label": `${o.label}. ${text}` }),
      // A draggable point for a trait that holds [x, y].  o: label, colour, keep(point) -> point
      handle(name, { label, colour = "reference", keep = (q) => q }) {
        const hit = svg("circle", { class: "hit", r: 22 });
        const grip = svg("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": label + ", moved with the arrow keys" });
        grip.dataset.name = name;
        grip.append(hit, svg("circle", { class: "knob", r: 8, fill: ink(colour) }));
        outer.append(grip);
        const go = ([a, b]) => put(name, keep([clamp(a, ...x), clamp(b, ...y)]));
        const follow = (e) => {
          const r = outer.getBoundingClientRect();
          const [u, v] = [(e.clientX - r.left - m.l) / (w - m.l - m.r), (e.clientY - r.top - m.t) / (h - m.t - m.b)];
          go([x[0] + u * (x[1] - x[0]), y[1] - v * (y[1] - y[0])]);
        };
        grip.addEventListener("pointerdown", (e) => {
          grip.setPointerCapture(e.pointerId);
          grip.focus({ preventScroll: true });
          e.preventDefault();
        });
        grip.addEventListener("pointermove", (e) => grip.hasPointerCapture(e.pointerId) && follow(e));
        grip.addEventListener("keydown", (e) => {
          const s = ((x[1] - x[0]) / 60) * (e.shiftKey ? 5 : 1);
          const by = { ArrowLeft: [-s, 0], ArrowRight: [s, 0], ArrowUp: [0, s], ArrowDown: [0, -s] }[e.key];
          if (!by) return;
          e.preventDefault();
          go([get(name)[0] + by[0], get(name)[1] + by[1]]);
        });
        watch(name);
        grips.push(() => {
          const q = get(name);
          const [u, v] = at(q);
          const words = { "aria-valuemin": x[0], "aria-valuemax": x[1], "aria-valuenow": q[0].toFixed(2), "aria-valuetext": `${show(q[0])}, ${show(q[1])}` };
          fill(grip, { transform: `translate(${(u + m.l).toFixed(1)} ${(v + m.t).toFixed(1)})`, ...words });
        });
      },
      settle: () => grips.forEach((f) => f()),
    };
    all.push(p);
    return p;
  }

  return {
    get, put, slider, choice, toggle, button, plot, watch, root,
    // The readout: one line a part; a part is a text or [text, colour].
    say(...parts) {
      const lines = parts.map((q) => (Array.isArray(q) ? html("div", { style: `color:${ink(q[1])}` }, q[0]) : html("div", {}, q)));
      if (lines.map((l) => l.textContent).join() !== [...readout.children].map((l) => l.textContent).join()) readout.replaceChildren(...lines);
    },
    // Draw now and after every change; returns the clean-up that anywidget calls.
    start(draw, stop = () => {}) {
      paint = draw;
      update();
      let last = plots.clientWidth;
      const seer = new ResizeObserver(() => {
        if (plots.clientWidth !== last) [last] = [plots.clientWidth, update()];
      });
      seer.observe(plots);
      return () => {
        stop();
        seer.disconnect();
        undo.forEach((f) => f());
        root.remove();
      };
    },
  };
}
