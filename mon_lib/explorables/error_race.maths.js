// Seconds of an epoch: each step costs `once` whatever its batch is, and each image costs `each`.
export const epochSeconds = (once, each, images, batch) => Math.ceil(images / Math.round(batch)) * once + images * each;
// The epochs that are done after so many seconds, at most those that were run.
export const epochsDone = (perEpoch, seconds, most) => Math.min(most, Math.floor(seconds / perEpoch + 1e-9));
// The batch from which on a step of b takes at most `factor` times a step of a; Infinity where there is none.
export function within(factor, onceA, eachA, onceB, eachB) {
  const [excess, gain] = [onceB - factor * onceA, factor * eachA - eachB];
  return gain > 0 ? Math.max(1, Math.ceil(excess / gain - 1e-9)) : gain === 0 && excess <= 0 ? 1 : Infinity;
}
// Of every runner: seconds of an epoch, epochs done, the error then (null before the first), and its points [seconds, error].
export function race({ errors, once, each, images, batch, seconds }) {
  return errors.map((row, i) => {
    const perEpoch = epochSeconds(once[i], each[i], images, batch);
    const epochs = epochsDone(perEpoch, seconds, row.length);
    return { perEpoch, epochs, error: epochs ? row[epochs - 1] : null, points: row.map((e, k) => [(k + 1) * perEpoch, e]) };
  });
}
