// Decodes base85, in which a page carries the analyzer and snapshots.

/** @param {string} text five characters for four bytes; N + 1 for a last group of N bytes @returns {Uint8Array<ArrayBuffer>} */
export function fromBase85(text) {
  const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{}";
  const digits = new Uint8Array(128);
  for (let digit = 0; digit < 85; digit += 1) digits[alphabet.charCodeAt(digit)] = digit;
  const rest = text.length % 5;
  const bytes = new Uint8Array(Math.floor(text.length / 5) * 4 + Math.max(0, rest - 1));
  for (let at = 0, to = 0; at < text.length; at += 5) {
    let value = 0;
    // Missing digits are the highest, so that the bytes before them are not rounded down.
    for (let place = at; place < at + 5; place += 1)
      value = value * 85 + (place < text.length ? digits[text.charCodeAt(place)] : 84);
    for (let scale = 2 ** 24; scale >= 1 && to < bytes.length; scale /= 256, to += 1)
      bytes[to] = Math.floor(value / scale);
  }
  return bytes;
}
