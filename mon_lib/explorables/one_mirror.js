import { show, stage } from "./_kit.js";
import { apply } from "./_linalg.js";
import { flag, normal, ray, reflect, rotation, share, shares, single } from "./one_mirror.maths.js";

const [LO, HI] = [1e-3, 4];

export default {
  render({ model, el }) {
    const ui = stage(model, el, "One mirror that moves with its point");
    const plane = ui.plot({ label: "A point, its mirror and its image", equal: true, width: 460, xlabel: "x₁", ylabel: "x₂" });
    const shared = ui.plot({ label: "Share of U in f against the norm of x", logx: true, width: 460, ratio: 0.88, narrow: 0.55, xlabel: "‖x‖", ylabel: "share s of U" });
    plane.handle("x", { label: "x" });
    ui.slider("angle", { label: "U turns by", min: -180, max: 180, step: 1, format: (v) => `${Math.round(v)}°` });
    ui.slider("eps", { label: "ε", min: 1e-6, max: 2, log: true, digits: 3 });

    return ui.start(() => {
      const [x, angle, eps] = ["x", "angle", "eps"].map(ui.get);
      const U = rotation(angle);
      const [v, y, exact, s] = [normal(U, x), single(U, x, eps), apply(U, x), share(U, x, eps)];
      const size = Math.hypot(...v);
      plane.clear([-2.4, 2.4], [-2.2, 2.2]);
      if (size > 0) {
        const [a, b] = v.map((c) => c / size);
        plane.line([[-5 * b, 5 * a], [5 * b, -5 * a]], "paper", { width: 2 });
        const side = -2 * b * x[0] + 2 * a * x[1] < 0 ? -1 : 1;
        plane.text([-1.9 * b * side, 1.9 * a * side], "mirror of x", "paper", { dx: 6, dy: -6 });
      }
      plane.line(flag(x).map((p) => reflect(v, p)), "paper", { width: 1.3, dash: "3 3" });
      plane.line([[0, 0], ...[4 / Math.max(Math.hypot(...x), 1e-9)].map((t) => x.map((c) => c * t))], "muted", { width: 1.2 });
      plane.line(ray(U, x, eps), "naive", { width: 1.8 });
      plane.line(flag(x), "reference", { width: 3 });
      plane.line(flag(x).map((p) => single(U, p)), "ours", { width: 3, fill: 0.25 });
      plane.dot(exact, "ours", { r: 6, hollow: true });
      plane.dot(y, "naive", { r: 5 });
      plane.text(x, "x", "reference", { dx: 12, dy: 12 });
      plane.text(exact, "Ux", "ours", { dx: -4, dy: 22, anchor: "end" });
      if (Math.hypot(y[0] - exact[0], y[1] - exact[1]) > 0.25) plane.text(y, "with ε", "naive", { dx: 10, dy: -8 });

      shared.clear([LO, HI], [-0.05, 1.1]);
      shared.line([[LO, 1], [HI, 1]], "ours");
      shared.text([LO, 1], "ε = 0: f = U", "ours", { dx: 4, dy: 18 });
      const curve = shares(U, eps, LO, HI);
      shared.line(curve, "naive");
      shared.text([LO, 0], "f = I near 0", "naive", { dx: 4, dy: -8 });
      const here = Math.min(Math.max(Math.hypot(...x), LO), HI);
      shared.dot([here, s], "naive", { r: 5 });
      const told = size === 0 ? "Wx = 0: no mirror, f(x) = x = Ux" : `f(x) = ${show(1 - s)}·x + ${show(s)}·Ux with this ε, and Ux without`;
      plane.describe(told);
      ui.say(
        [told, "naive"],
        [`each point of the flag has its own mirror: the flag is turned by ${Math.round(angle)}°, not mirrored`, "ours"],
        ["dashed: the whole flag in the mirror of x alone", "paper"],
        `a smaller ε moves the bend towards 0 (‖Wx‖² = ε) and never removes it`,
      );
    });
  },
};
