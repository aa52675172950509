import { show, stage } from "./_kit.js";
import { interval, length, newtonOnF, newtonPath, poles, roots, spectrum, unit } from "./secular_root.maths.js";

const POINTS = 500;
const [LEFT, RIGHT, TOP] = [0.05, 1.15, 3];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "The scalar equation of the inverse");
    const all = ui.plot({ label: "Length of x against c", ratio: 0.8, narrow: 0.8, width: 460, xlabel: "c", ylabel: "‖x(c)‖ / ‖y‖" });
    const climb = ui.plot({ label: "One over the length of x, on the interval", ratio: 0.8, narrow: 0.8, width: 460, xlabel: "c, from 1/κ to 1", ylabel: "‖y‖ / ‖x(c)‖" });
    ui.slider("kappa", { label: "condition κ", min: 1.05, max: 4, step: 0.01, marks: () => [[2, "2", "naive"]] });
    ui.slider("middle", { label: "place of λ₂", min: 0, max: 1, step: 0.05 });
    ui.slider("y1", { label: "share y₁", min: 0, max: 1, step: 0.01 });
    ui.slider("y2", { label: "share y₂", min: 0, max: 1, step: 0.01 });
    ui.slider("y3", { label: "share y₃", min: 0, max: 1, step: 0.01 });

    return ui.start(() => {
      const [kappa, middle, ...shares] = ["kappa", "middle", "y1", "y2", "y3"].map(ui.get);
      const lambda = spectrum(kappa, middle);
      const y = unit(shares);
      const [low, high] = interval(lambda);
      const [found, walls] = [roots(lambda, y), poles(lambda, y)];
      const good = kappa < 2;
      const one = found.length === 1;
      const curve = (from, to, value) => Array.from({ length: POINTS + 1 }, (_, k) => from + ((to - from) * k) / POINTS).map((c) => [c, value(c)]);

      all.clear([LEFT, RIGHT], [0, TOP]);
      all.line([[low, 0], [low, TOP], [high, TOP], [high, 0]], "muted", { width: 0, fill: 0.15 });
      for (const p of walls) all.rule({ x: p }, "muted");
      walls.forEach((p, i) => all.text([p, 0], i ? (i === walls.length - 1 ? "pole of the smallest λ" : "") : walls.length > 1 ? "poles" : "pole", "muted", { dx: 4, dy: -6 }));
      all.rule({ y: 1 }, "reference");
      const cuts = [LEFT, ...walls.filter((p) => p > LEFT), RIGHT];
      for (let i = 0; i + 1 < cuts.length; i++) {
        const gap = 1e-6 * (cuts[i + 1] - cuts[i]);
        all.line(curve(cuts[i] + gap, cuts[i + 1] - gap, (c) => Math.min(length(lambda, y, c), 50)), "ours");
      }
      for (const c of found) all.dot([c, 1], one ? "ours" : "naive", { r: 6 });
      all.text([(low + high) / 2, TOP], "interval", "muted", { dy: 16, anchor: "middle" });

      climb.clear([low, high], [0, 1.9]);
      climb.rule({ y: 1 }, "reference");
      climb.line(curve(low, high, (c) => 1 / length(lambda, y, c)), "ours");
      const lines = [];
      if (good) {
        const path = newtonPath(lambda, y);
        const [root] = path.slice(-1);
        path.forEach((c, k) => {
          const h = 1 / length(lambda, y, c);
          if (k + 1 < path.length) climb.line([[c, h], [path[k + 1], 1], [path[k + 1], 1 / length(lambda, y, path[k + 1])]], "newton", { width: 1.5 });
          climb.dot([c, h], "newton", { r: k + 1 < path.length ? 3.5 : 6 });
        });
        lines.push([`κ < 2: no pole in the interval [${show(low)}, ${show(high)}], one root c = ${show(root, 4)}, one preimage`, "ours"]);
        lines.push([`Newton on the concave curve climbs from the left end in ${path.length - 1} steps and cannot pass the root`, "newton"]);
      } else {
        for (const c of found) climb.dot([c, 1], one ? "ours" : "naive", { r: 6 });
        const end = newtonOnF(lambda, y);
        const many = one ? "one root: this y still has one preimage" : `${found.length} roots: ${found.length} preimages of the same y, at c = ${found.map((c) => show(c, 3)).join(", ")}`;
        lines.push([`κ ≥ 2: ${y[0] ? "the pole of the smallest λ is in the interval" : "y has no share along the smallest λ: no pole, but a free entry of x there"}; ${many}`, one ? "ours" : "naive"]);
        lines.push([end ? `Newton's method on f, from x = y, ends at c = ${show(end.c, 3)}${one ? "" : ", without a sign of the others"}` : "Newton's method on f, from x = y, does not arrive", "newton"]);
        if (end) climb.dot([end.c, 1], "newton", { r: 10, hollow: true });
        for (const c of found) climb.dot([c, 1], one ? "ours" : "naive", { r: 6 });
      }
      all.describe(`${found.length} root${one ? "" : "s"} in the interval from ${show(low)} to ${show(high)}`);
      climb.describe(good ? "A concave curve that crosses one once" : "The curve falls to zero at a pole inside the interval");
      ui.say(...lines);
    });
  },
};
