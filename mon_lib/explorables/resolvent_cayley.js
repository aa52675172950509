import { show, stage } from "./_kit.js";
import { apply, resolvent } from "./_linalg.js";
import { cayley, circle, image, measure, operator } from "./resolvent_cayley.maths.js";

export default {
  render({ model, el }) {
    const ui = stage(model, el, "Resolvent and Cayley operator of a two by two operator");
    const plane = ui.plot({ label: "The unit circle and its images", equal: true, width: 520, xlabel: "", ylabel: "" });
    plane.handle("point", { label: "point x" });
    ui.slider("m", { label: "monotone m", min: 0, max: 2, step: 0.05 });
    ui.slider("s", { label: "skew s", min: 0, max: 3, step: 0.05 });
    ui.slider("t", { label: "stretch t", min: 0, max: 3, step: 0.05 });
    ui.slider("alpha", { label: "step α", min: 0.05, max: 20, log: true });

    return ui.start(() => {
      const [m, s, t, alpha, x] = ["m", "s", "t", "alpha", "point"].map(ui.get);
      const G = operator(m, s, t);
      const [R, C] = [resolvent(G, alpha), cayley(G, alpha)];
      plane.clear([-2.4, 2.4], [-1.8, 1.8]);
      const round = circle();
      plane.line(image(G, round), "forward-backward", { close: true, dash: "6 4" });
      plane.line(round, "reference", { close: true, width: 1.5 });
      plane.line(image(C, round), "peaceman-rachford", { close: true, fill: 0.08, width: 2.5 });
      plane.line(image(R, round), "douglas-rachford", { close: true, fill: 0.16, dash: "10 3 2 3" });
      const [Gx, Rx, Cx] = [G, R, C].map((A) => apply(A, x));
      plane.line([x, Cx], "muted", { width: 1.5, dash: "3 3" });
      plane.dot(Gx, "forward-backward", { r: 5 });
      plane.dot(Cx, "peaceman-rachford", { r: 5 });
      plane.dot(Rx, "douglas-rachford", { r: 5 });
      plane.text(x, "x", "reference", { dx: 11, dy: -7 });
      plane.text(Gx, "Gx", "forward-backward", { dx: 8, dy: -8 });
      plane.text(Rx, "Rx", "douglas-rachford", { dx: 8, dy: -8 });
      plane.text(Cx, "Cx", "peaceman-rachford", { dx: 8, dy: 16 });
      const size = measure(m, s, t, alpha);
      const verdict = size.C > 1 - 5e-10 ? "not a contraction" : "a contraction";
      const still = m === 0 && t === 0 ? "an isometry: C only turns" : verdict;
      plane.describe(`Norm of R ${show(size.R)}, norm of C ${show(size.C)}`);
      ui.say(
        [`‖G‖ = ${show(size.G, 3)}, and G is monotone with m = ${show(size.m)}`, "forward-backward"],
        [`‖R‖ = ${show(size.R, 3)}: Rx lies half way from x to Cx`, "douglas-rachford"],
        [`‖C‖ = ${show(size.C, 3)}: ${still}`, "peaceman-rachford"],
      );
    });
  },
};
