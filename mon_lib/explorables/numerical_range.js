import { show, stage } from "./_kit.js";
import { eigenvalues, matrix, numericalRange, reach } from "./numerical_range.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Numerical range of W");
    const plane = ui.plot({ label: "Numerical range of W in the complex plane", equal: true, width: 520, xlabel: "Re", ylabel: "Im" });
    ui.slider("m", { label: "m", min: 0.05, max: 2, step: 0.05 });
    ui.slider("g", { label: "symmetric g", min: 0, max: 8, step: 0.1 });
    ui.slider("h", { label: "skew h", min: 0, max: 3.5, step: 0.1 });
    ui.slider("free", { label: "freedom t", min: 0, max: 1, step: 0.01 });

    return ui.start(() => {
      const [m, g, h, free] = ["m", "g", "h", "free"].map(ui.get);
      const W = matrix(m, g, h, free);
      const right = reach(W);
      const inside = right <= 1 - m + 1e-9;
      const colour = inside ? "peaceman-rachford" : "naive";
      plane.clear([-5.4, 3.4], [-4.2, 4.2]);
      plane.line([[1 - m, -9], [9, -9], [9, 9], [1 - m, 9]], "naive", { width: 0, fill: 0.09 });
      plane.rule({ x: 1 - m }, "naive", { dash: null, width: 2 });
      plane.line(numericalRange(W), colour, { close: true, fill: 0.15, width: 2.5 });
      const arc = Array.from({ length: 73 }, (_, k) => [Math.cos((k * Math.PI) / 36), Math.sin((k * Math.PI) / 36)]);
      plane.line(arc, "muted", { width: 1.2, dash: "3 3" });
      const roots = eigenvalues(W);
      for (const z of roots) plane.dot(z, "reference", { r: 4.5, hollow: true });
      plane.text([1 - m, 3.7], "Re = 1 − m", "naive", { dx: 8 });
      plane.text([-0.9, -0.6], "unit circle", "muted", { dx: -6, dy: 14, anchor: "end" });
      const radius = Math.max(...roots.map((z) => Math.hypot(...z)));
      const gap = inside ? `${show(1 - m - right)} to spare before 1 − m = ${show(1 - m)}` : `past 1 − m = ${show(1 - m)}: monotonicity is lost`;
      plane.describe(`It reaches Re = ${show(right)}`);
      ui.say(
        [`W reaches Re = ${show(right)}: ${gap}`, colour],
        `${free > 0 ? "t > 0: W is mixed with a matrix that was not built from A and B" : "W = (1 − m)I − g AᵀA/‖A‖² + h(B − Bᵀ)/‖B‖"}`,
        `largest |eigenvalue| (rings) ${show(radius)}${radius > 1 && inside ? ": outside the unit circle, and the equilibrium is still unique" : ""}`,
      );
    });
  },
};
