import { show, stage } from "./_kit.js";
import { averagedFactor, cayleyFactor, distances, forwardFactor, run, TARGET, threshold } from "./splitting_plane.maths.js";

const METHODS = [
  ["forward-backward", "forward-backward", forwardFactor, "6 4", [59, -8]],
  ["douglas-rachford", "Douglas-Rachford", averagedFactor, "10 3 2 3", [59, -8]],
  ["peaceman-rachford", "Peaceman-Rachford", cayleyFactor, null, [29, 26]],
];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Three splittings in the plane");
    const plane = ui.plot({ label: "The iterates in the plane", equal: true, width: 460, xlabel: "z₁", ylabel: "z₂" });
    const errors = ui.plot({ label: "Error against steps", logy: true, width: 460, ratio: 0.88, narrow: 0.55, xlabel: "step k", ylabel: "‖zₖ − z*‖" });
    plane.handle("start", { label: "start" });
    ui.slider("alpha", {
      label: "step α", min: 0.05, max: 8, log: true,
      marks: () => [[threshold(ui.get("m"), ui.get("s")), "2m/L²", "forward-backward"]],
    });
    ui.slider("m", { label: "monotone m", min: 0.1, max: 2, step: 0.05 });
    ui.slider("s", { label: "skew s", min: 0, max: 3, step: 0.05 });
    ui.slider("steps", { label: "steps k", min: 1, max: 60, step: 1, digits: 0 });
    ui.choice("f", { label: "f", options: [["orthant", "indicator of z ≥ 0"], ["l1", "‖z‖₁"]] });

    return ui.start(() => {
      const [alpha, m, s, f, start, steps] = ["alpha", "m", "s", "f", "start", "steps"].map(ui.get);
      plane.clear([-1.2, 3.2], [-1.2, 2.8]);
      errors.clear([0, 60], [1e-8, 1e3]);
      if (f === "orthant") plane.line([[0, 9], [0, 0], [9, 0], [9, 9]], "muted", { width: 0, fill: 0.1 });
      errors.rule({ x: steps }, "muted");
      const lines = [`2m/L² = ${show(threshold(m, s))}: forward-backward ${alpha < threshold(m, s) ? "contracts" : "need not converge"} at α = ${show(alpha)}`];
      for (const [method, name, factor, dash, place] of METHODS) {
        const path = run(method, { alpha, m, s, f }, start, 60);
        const error = distances(path);
        plane.line([start, ...path.slice(0, steps + 1)], method, { dots: 2.5, dash, width: 1.8 });
        errors.line(error.map((e, k) => [k, Math.max(e, 1e-12)]), method, { dash });
        const [k, dy] = place;
        errors.text([k, Math.min(Math.max(error[k], 1e-8), 200)], name, method, { dy, anchor: "end" });
        errors.dot([steps, Math.max(error[steps], 1e-8)], method, { r: 5 });
        const bound = method === "douglas-rachford" ? "≤ " : "";
        lines.push([`${name}: factor ${bound}${show(factor(alpha, m, s), 3)}, error after ${steps} steps ${show(error[steps], 3)}`, method]);
      }
      plane.dot(TARGET, "reference", { r: 6, hollow: true });
      plane.text(TARGET, "z*", "reference", { dx: 10, dy: -8 });
      plane.text(start, "start", "reference", { dx: -12, dy: -8, anchor: "end" });
      ui.say(...lines);
    });
  },
};
