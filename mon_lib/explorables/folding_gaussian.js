import { clamp, ink, show, stage, svg } from "./_kit.js";
import { cloud, cover, fold, image, move, sheets, terms, tilt, total, wedge } from "./folding_gaussian.maths.js";

const POINTS = cloud(900);
const ROUND = Array.from({ length: 181 }, (_, k) => [Math.cos((k * Math.PI) / 90), Math.sin((k * Math.PI) / 90)]);
const [LOW, TOP] = [0.01, 100];
const COUNT = ["no preimage", "one preimage", "two preimages", "three preimages"];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "A Gaussian moved by one reflection");
    const plane = ui.plot({ label: "Points of the Gaussian and their images", equal: true, width: 420, xlabel: "x₁", ylabel: "x₂" });
    const graph = ui.plot({ label: "Density of f(x) on the circle", width: 460, ratio: 0.95, logy: true, xlabel: "angle of y", ylabel: "density at y; 1 is the peak at x" });
    const keep = ([a, b]) => {
      const size = Math.hypot(a, b);
      const t = size > 0 ? clamp(size, 0.6, 1.9) / size : 0;
      return t ? [a * t, b * t] : [0, 0.6];
    };
    plane.handle("mean", { label: "mean of the Gaussian", keep });
    ui.slider("kappa", { label: "κ", min: 1, max: 3, step: 0.02, marks: () => [[2, "2", "ours"]] });
    ui.slider("sigma", { label: "σ", min: 0.1, max: 0.6, step: 0.01 });
    const dots = (points, colour, opacity) => {
      const d = points.map((p) => "M" + plane.at(p).map((c) => c.toFixed(1)).join(" ") + "h.01").join("");
      const pen = { stroke: ink(colour), "stroke-width": 2.4, "stroke-linecap": "round", "stroke-opacity": opacity };
      if (d) plane.raw(svg("path", { d, fill: "none", ...pen }));
    };

    return ui.start(() => {
      const [kappa, sigma, mean] = [ui.get("kappa"), ui.get("sigma"), keep(ui.get("mean"))];
      const [r, w] = [Math.hypot(...mean), wedge(kappa)];
      const y = image(kappa, mean);
      const target = Math.atan2(y[1], y[0]);
      const found = terms(kappa, mean, sigma, r, target);
      const density = found.reduce((sum, { value }) => sum + value, 0);
      const folded = ([a, b]) => tilt(Math.atan2(b, a)) < w;

      plane.clear([-2.7, 2.7], [-2.7, 2.7]);
      plane.line(ROUND.map(([a, b]) => [r * a, r * b]), "muted", { width: 1, dash: "3 3" });
      for (const up of w ? [1, -1] : [])
        for (const side of [-1, 1]) plane.line([[0, 0], [4 * side * Math.sin(w), 4 * up * Math.cos(w)]], "naive", { width: 1, dash: "6 4" });
      const before = POINTS.map((p) => move(mean, sigma, p));
      const after = before.map((p) => image(kappa, p));
      dots(before, "muted", 0.5);
      dots(after.filter((p) => !folded(p)), "ours", 0.8);
      dots(after.filter(folded), "naive", 0.8);
      for (const k of [1, 2]) {
        const ring = ROUND.map((p) => move(mean, k * sigma, p));
        plane.line(ring, "reference", { width: 1.5 });
        plane.line(ring.map((p) => image(kappa, p)), "reference", { width: 1.5 });
      }
      for (const { theta } of found) plane.dot([r * Math.cos(theta), r * Math.sin(theta)], "naive", { r: 5, hollow: true });
      plane.dot(y, "reference", { r: 5 });
      plane.text(y, "y", "reference", { dx: 9, dy: 16 });
      plane.text(mean, "x", "reference", { dx: 12, dy: -8 });

      const [left, right, tick] = [target - 0.6, target + 0.6, Math.PI / 12];
      const labels = [];
      for (let k = Math.ceil(left / tick); k * tick <= right; k++) labels.push([k * tick, `${(15 * k + 720) % 360}°`]);
      graph.clear([left, right], [LOW, TOP], labels);
      graph.rule({ x: target }, "muted", { width: 1 });
      const curve = sheets(kappa, mean, sigma, r, target);
      for (const { turned, points } of curve) {
        // Outside the rays one sheet is all there is.
        const alone = points.map(([t, v]) => (tilt(t) < w ? [t, NaN] : [t, v]));
        for (const shift of [-2 * Math.PI, 0, 2 * Math.PI]) {
          const aside = ([t, v]) => [t + shift, v];
          if (w) graph.line(points.map(aside), turned ? "naive" : "ours", { width: 1.5, dash: turned ? "5 3" : undefined });
          graph.line(alone.map(aside), "reference", { width: 2.5 });
        }
      }
      for (let k = -2; k < 2; k++) graph.line(total(kappa, mean, sigma, r, (k + 0.5) * Math.PI), "reference", { width: 2.5 });
      const key = [["sum over preimages", "reference"], ["one preimage", "ours"], ["turned over", "naive"]];
      (w ? key : []).forEach(([text, colour], k) => graph.text([left, TOP], text, colour, { dx: 8, dy: 20 + 19 * k }));
      for (const { value } of found) graph.dot([target, clamp(value, LOW / 2, 2 * TOP)], "naive", { r: 5, hollow: true });
      graph.dot([target, clamp(density, LOW / 2, 2 * TOP)], "reference", { r: 5 });

      const colour = w ? "naive" : "ours";
      const parts = found.map(({ value, det }) => `${show(value)}${det < 0 ? " (turned over)" : ""}`).join(" + ");
      const degrees = Math.round((fold(kappa) * 180) / Math.PI);
      plane.describe(`The mean goes to a point with ${COUNT[found.length]}`);
      graph.describe(`The density at y is ${show(density)}`);
      ui.say(
        [w ? `past 2 the plane folds: det J vanishes at ${degrees}°, and between the dashed rays every y has three preimages` : kappa > 1.99 ? "at 2 det J vanishes on the second axis, and f is still one-to-one" : "f is one-to-one: one term at every y", colour],
        `y = f(mean) has ${COUNT[found.length]}; density ${found.length > 1 ? parts + " = " : ""}${show(density)} of the peak of the Gaussian`,
        [`as a flow onto a standard normal z = f(x), this f has a density of mass ${show(cover(kappa))}`, colour],
      );
    });
  },
};
