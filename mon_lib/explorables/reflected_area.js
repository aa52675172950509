import { clamp, show, stage } from "./_kit.js";
import { area, circle, curve, det, factors, jacobian, matrix, reflect } from "./reflected_area.maths.js";

const TOP = 5;

export default {
  render({ model, el }) {
    const ui = stage(model, el, "A disc and its image under one reflection");
    const plane = ui.plot({ label: "The disc around x and its image under f", equal: true, width: 440, xlabel: "x₁", ylabel: "x₂" });
    const graph = ui.plot({ label: "det J against the direction of x", ratio: 0.9, narrow: 0.6, width: 440, xlabel: "direction of x in degrees", ylabel: "det J" });
    const keep = ([a, b]) => {
      const size = Math.hypot(a, b);
      const t = size > 0 ? clamp(size, 0.8, 2.2) / size : 0;
      return t ? [a * t, b * t] : [0.8, 0];
    };
    plane.handle("x", { label: "x", colour: "reference", keep });
    ui.slider("lam", { label: "W₂₂ = λ", min: -3, max: 4, step: 0.05, marks: () => [[0.5, "½"], [2, "2"]] });
    ui.slider("s", { label: "skew s", min: -2, max: 2, step: 0.05 });
    ui.slider("r", { label: "radius r", min: 0.05, max: 0.6, step: 0.01 });

    return ui.start(() => {
      const [lam, s, r, x] = ["lam", "s", "r", "x"].map(ui.get);
      const W = matrix(lam, s);
      const value = det(jacobian(W, x));
      const colour = value < 0 ? "naive" : "ours";
      plane.clear([-2.8, 2.8], [-2.8, 2.8]);
      plane.line(circle([0, 0], Math.hypot(...x)), "muted", { close: true, width: 1, dash: "3 3" });
      const disc = circle(x, r);
      const image = disc.map((p) => reflect(W, p));
      const y = reflect(W, x);
      const letters = (points, centre, ink) =>
        ["a", "b", "c"].forEach((name, k) => {
          const p = points[60 * k];
          const out = Math.hypot(p[0] - centre[0], p[1] - centre[1]) || 1;
          plane.dot(p, ink, { r: 3.5 });
          plane.text(p, name, ink, { dx: (14 * (p[0] - centre[0])) / out, dy: (-14 * (p[1] - centre[1])) / out + 4, anchor: "middle" });
        });
      plane.line(disc, "reference", { close: true, fill: 0.1, width: 2 });
      letters(disc, x, "reference");
      plane.line(image, colour, { close: true, fill: 0.2, width: 2.5 });
      letters(image, y, colour);
      plane.dot(y, colour, { r: 4 });
      const inwards = 1 - (r + 0.5) / Math.hypot(...x);
      plane.text(y.map((v) => v * inwards), "f(x)", colour, { dy: 4, anchor: "middle" });
      plane.text(x.map((v) => v * inwards), "x", "reference", { dy: 4, anchor: "middle" });

      const angle = ((Math.atan2(x[1], x[0]) * 180) / Math.PI + 360) % 360;
      const { points, changes } = curve(W);
      graph.clear([0, 360], [-TOP, TOP], [0, 90, 180, 270, 360].map((v) => [v, String(v)]));
      graph.rule({ y: 0 }, "muted");
      graph.line(points, "reference", { width: 2 });
      graph.dot([angle, clamp(value, -TOP, TOP)], colour, { r: 6 });
      const [first, second] = factors(W, x);
      const turned = value < 0 ? "turned over: a, b, c run the other way round" : "not turned over";
      const share = area(image) / area(disc);
      plane.describe(`det J is ${show(value)}`);
      graph.describe(changes ? `It changes its sign ${changes} times` : "It keeps its sign");
      ui.say(
        [`det J = ${show(value)} at x; the image has ${show(share)} times the area of the disc, ${turned}`, colour],
        `det J = (−det A) · (xᵀA⁻¹Wx / xᵀWx) = ${show(first)} · ${show(second)}`,
        changes ? `det J changes its sign ${changes} times on the way round: f folds there and is not invertible` : "det J keeps its sign all the way round",
      );
    });
  },
};
