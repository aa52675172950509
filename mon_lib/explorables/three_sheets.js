import { show, stage } from "./_kit.js";
import { border, mass, plain, preimages, running, sphere, weighted } from "./three_sheets.maths.js";

const SAMPLES = 8000;
const COUNT = ["no preimage", "one preimage", "two preimages", "three preimages"];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "The mass that samples do not see");
    const plane = ui.plot({ label: "The plane of the axis and the target", equal: true, width: 400, xlabel: "along n" });
    const graph = ui.plot({ label: "Estimates of the mass", width: 460, ratio: 0.9, logx: true, xlabel: "samples", ylabel: "mean of |det J|" });
    const unit = ([a, b]) => (a === 0 && b === 0 ? [1, 0] : [a / Math.hypot(a, b), b / Math.hypot(a, b)]);
    plane.handle("y", { label: "y", keep: unit });
    ui.slider("t", { label: "t", min: -1, max: 2, step: 0.01, marks: () => [[0, "I − Q", "ours"], [1, "κ = 2", "ours"]] });
    ui.slider("d", { label: "d", min: 2, max: 12, step: 1, digits: 0 });
    let [dimension, points] = [0, []];

    return ui.start(() => {
      const t = Math.abs(ui.get("t")) < 1e-9 ? 0 : ui.get("t");
      const d = Math.min(12, Math.max(2, Math.round(ui.get("d"))));
      const y = unit(ui.get("y"));
      if (d !== dimension) [dimension, points] = [d, sphere(d, SAMPLES, 5)];
      const [truth, sources] = [mass(t, d), preimages(t, y)];
      const [all, aimed] = [running(plain(t, d, points)), running(weighted(t, d, points))];

      plane.clear([-1.35, 1.35], [-1.35, 1.35]);
      const arc = (from, to, n = 120) => Array.from({ length: n + 1 }, (_, k) => [Math.cos(from + ((to - from) * k) / n), Math.sin(from + ((to - from) * k) / n)]);
      plane.line(arc(0, 2 * Math.PI), "muted", { width: 1.5 });
      const half = border(t);
      if (half > 0) for (const at of [0, Math.PI]) plane.line(arc(at - half, at + half), "naive", { width: 5 });
      plane.text([1, 0], "n", "muted", { dx: 12, dy: 16 });
      sources.forEach((x, k) => plane.dot(x, k ? "naive" : "ours", { r: 6, hollow: k > 0 }));
      plane.text(sources[0], "x", "ours", { dx: 10, dy: -8 });
      plane.text(y, "y", "reference", { dx: 12, dy: 16 });

      graph.clear([10, SAMPLES], [0, 4]);
      graph.rule({ y: truth }, "reference");
      const last = (curve) => curve[curve.length - 1];
      for (const [curve, colour, dash] of [[all, "naive", "6 3"], [aimed, "ours"]]) {
        const band = [...curve.map(([k, m, e]) => [k, m + e]), ...[...curve].reverse().map(([k, m, e]) => [k, m - e])];
        graph.line(band, colour, { width: 0, fill: 0.15, close: true });
        graph.line(curve.map(([k, m]) => [k, m]), colour, { width: 2.5, dash });
      }
      const apart = Math.abs(last(all)[1] - last(aimed)[1]) > 0.5;
      const low = last(all)[1] < last(aimed)[1];
      if (apart) graph.text([SAMPLES, Math.min(3.9, last(all)[1])], "uniform", "naive", { anchor: "end", dx: -4, dy: low ? 18 : -10 });
      if (apart) graph.text([SAMPLES, last(aimed)[1]], "importance", "ours", { anchor: "end", dx: -4, dy: low ? -10 : 18 });
      graph.text([10, truth], "true mass", "reference", { dx: 4, dy: -6 });

      const [, m, e] = last(all);
      const [, n, f] = last(aimed);
      const caught = Math.abs(m - truth) <= 2 * e + 0.01;
      const kind = t === 0 ? "W is singular, f is the matrix Q" : t >= 1 ? "κ is at most 2, f is one-to-one" : `W is regular, det W is ${t < 0 ? "negative" : "positive"}`;
      plane.describe(`y has ${COUNT[sources.length]}`);
      graph.describe(`Uniform ${show(m)}, importance ${show(n)}, true ${show(truth)}`);
      ui.say(
        `t = ${show(t)}, d = ${d}: ${kind}; y has ${COUNT[sources.length]}, and the mass is ${show(truth)}`,
        [`${SAMPLES} uniform samples: ${show(m)} ± ${show(e, 3)}${caught ? "" : ", an error bar that misses the mass"}`, caught ? "reference" : "naive"],
        [`as many importance samples: ${show(n)} ± ${show(f, 3)}`, "ours"],
      );
    });
  },
};
