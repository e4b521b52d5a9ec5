// Finds the maximum of a range in logarithmic time: each level has the maximum of every 64 values below it.

const FAN = 64;

export class Pyramid {
  /** @param {Float64Array} values */
  constructor(values) {
    this.values = values;
    /** @type {Uint32Array[]} indices into `values` */
    this.levels = [];
    let length = values.length;
    while (length > FAN) {
      const below = this.levels.at(-1);
      const level = new Uint32Array(Math.ceil(length / FAN));
      for (let at = 0; at < level.length; at += 1) {
        const end = Math.min(length, (at + 1) * FAN);
        let best = below ? below[at * FAN] : at * FAN;
        for (let child = at * FAN + 1; child < end; child += 1) {
          const index = below ? below[child] : child;
          if (values[index] > values[best]) best = index;
        }
        level[at] = best;
      }
      this.levels.push(level);
      length = level.length;
    }
  }

  /** The first index of the largest value in `from..to`; `from` if that is empty. @param {number} from @param {number} to */
  argmax(from, to) {
    const { values, levels } = this;
    let best = from;
    /** @param {number} index */
    const consider = (index) => {
      if (values[index] > values[best] || (values[index] === values[best] && index < best)) best = index;
    };
    /** @param {number} depth @param {number} low @param {number} high */
    const search = (depth, low, high) => {
      const level = depth ? levels[depth - 1] : null;
      const first = Math.ceil(low / FAN);
      const last = Math.floor(high / FAN);
      if (first >= last || depth >= levels.length) {
        for (let at = low; at < high; at += 1) consider(level ? level[at] : at);
        return;
      }
      for (let at = low; at < first * FAN; at += 1) consider(level ? level[at] : at);
      for (let at = last * FAN; at < high; at += 1) consider(level ? level[at] : at);
      search(depth + 1, first, last);
    };
    search(0, from, to);
    return best;
  }
}
