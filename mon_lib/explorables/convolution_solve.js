import { drawBounds, drawClasses, greyCanvas } from "./_classes.js";
import { html, show, stage, svg } from "./_kit.js";
import { distance, translated } from "./convolution_solve.maths.js";
import { argmax, bytes, decadeRange, settled } from "./digit_solve.maths.js";

const GAP = 0.08;

export default {
  render({ model, el }) {
    const ui = stage(model, el, "The channels of a convolutional network while the solver runs");
    const names = ["images", "size", "states", "border", "steps", "probabilities", "bounds", "labels", "shift"];
    const [images, size, states, border, steps, probabilities, bounds, labels, shift] = names.map(ui.get);
    const whole = size.map((s) => s + 2 * border);
    const last = steps.length - 1;
    // A row of pictures to choose from; the trait `name` holds the chosen one.
    function row(name, title, label, count) {
      const buttons = [...Array(count).keys()].map((i) => html("button", { type: "button", "aria-label": label(i) }));
      buttons.forEach((b, i) => b.addEventListener("click", () => ui.put(name, i)));
      ui.watch(name);
      return [html("div", { class: "digits", role: "group", "aria-label": title }, ...buttons), buttons];
    }
    const [digits, chooseDigit] = row("digit", "choose a digit", (i) => `digit ${i + 1} of ${images.length}, a ${labels[i]}`, images.length);
    const count = states[0][0][0].length;
    const [channels, chooseChannel] = row("channel", "choose a channel", (i) => `channel ${i + 1} of ${count}`, count);
    chooseDigit.forEach((b, i) => b.append(greyCanvas(bytes(images[i][0]), size)));
    const small = chooseChannel.map((b) => b.appendChild(html("canvas", { width: whole[1], height: whole[0], "aria-hidden": "true" })));
    ui.root.prepend(digits, channels);
    const panel = ui.plot({ label: "Input and channel", bare: true, equal: true, basis: 560 });
    const bars = ui.plot({ label: "Class probabilities", ratio: 0.8, narrow: 0.6, width: 420, xlabel: "class", ylabel: "probability" });
    const fall = ui.plot({ label: "Certified error bound", logy: true, ratio: 0.8, narrow: 0.6, width: 420, xlabel: "step k", ylabel: "bound on ‖z − z*‖/‖z‖" });
    ui.slider("frame", { label: "step k", min: 0, max: last, step: 1, format: (v) => String(steps[v]) });
    ui.toggle("moved", { label: `move the digit ${words(shift)}` });
    const range = decadeRange(bounds.flat());

    // The n-th picture of the panel: bytes with a frame, and a title above.
    function place(n, grey, shape, inset, title) {
      const x = n * (1 + GAP);
      const [[left, top], [right, foot]] = [panel.at([x, 1]), panel.at([x + 1, 0])];
      const href = greyCanvas(grey, shape).toDataURL();
      const box = { x: left, y: top, width: right - left, height: foot - top, preserveAspectRatio: "none" };
      panel.raw(svg("image", { href, ...box, style: "image-rendering:pixelated" }));
      const [u, v] = [inset / shape[1], inset / shape[0]];
      if (inset) panel.line([[x + u, v], [x + 1 - u, v], [x + 1 - u, 1 - v], [x + u, 1 - v]], "forward-backward", { close: true, dash: "4 3", width: 1.5 });
      panel.text([x, 1], title, "reference", { dy: -6 });
    }

    return ui.start(() => {
      const [digit, channel, frame, moved] = ["digit", "channel", "frame", "moved"].map(ui.get);
      const side = moved ? 1 : 0;
      chooseDigit.forEach((b, i) => b.setAttribute("aria-pressed", i === digit));
      chooseChannel.forEach((b, i) => b.setAttribute("aria-pressed", i === channel));
      const here = states[digit][side];
      const [now, final] = [frame, last].map((k) => bytes(here[k][channel]));
      small.forEach((canvas, i) => greyCanvas(bytes(here[frame][i]), whole, canvas));
      panel.clear([0, 3 + 2 * GAP], [0, 1.16]);
      place(0, bytes(images[digit][side]), size, 0, "x");
      place(1, now, whole, border, `z, step ${steps[frame]}`);
      place(2, final, whole, border, "z*");
      const [all, bound, truth] = [probabilities[digit][side], bounds[digit][side], labels[digit]];
      const [p, gap] = [all[frame], distance(now, final)];
      const guess = argmax(p);
      drawClasses(bars, p, all[last], truth);
      drawBounds(fall, bounds.filter((_, i) => i !== digit).map((b) => b[0]), bound, steps, frame, range);
      panel.describe(`Channel ${channel + 1} after step ${steps[frame]} differs from its equilibrium by ${show(gap)} of its size; its border is zero`);
      bars.describe(`Most probable class ${guess}, probability ${show(p[guess])}`);
      const straight = bytes(states[digit][0][frame][channel]);
      const off = distance(translated(straight, whole, shift), bytes(states[digit][1][frame][channel]));
      ui.say(
        [`after step ${steps[frame]}: class ${guess} with probability ${show(p[guess])} (the digit shows ${truth}); the answer stays from step ${steps[settled(all)]} on`, guess === truth ? "peaceman-rachford" : "naive"],
        `channel ${channel + 1} is ${show(gap)} of its size away from z*; certified for all channels: ‖z − z*‖ ≤ ${show(bound[frame], 3)} ‖z‖`,
        `the digit moved ${words(shift)} moves the channel with it, up to ${show(off)} of its size`,
      );
    });
  },
};

function words([down, right]) {
  const part = (n, one, other) => (n ? [`${Math.abs(n)} ${n > 0 ? one : other}`] : []);
  return [...part(right, "right", "left"), ...part(down, "down", "up")].join(" and ");
}
