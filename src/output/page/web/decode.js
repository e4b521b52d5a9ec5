// Decodes the data of a page: columns of variable-length integers, deflated, in base64.

import { fromBase64 } from "./base64.js";

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<Uint8Array<ArrayBuffer>>} */
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @template {Uint32Array | Float64Array} T @param {Uint8Array} bytes @param {T} into sets the number of values; values without bytes stay 0 @returns {T} */
export function varints(bytes, into) {
  const end = bytes.length;
  let at = 0;
  for (let index = 0; index < into.length && at < end; index += 1) {
    let value = bytes[at++];
    if (value > 127) {
      value &= 127;
      let place = 128;
      let byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * place;
        place *= 128;
      } while (byte > 127);
    }
    into[index] = value;
  }
  return into;
}

/** @param {number} value */
function unzigzag(value) {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}

/** Turns zigzag differences into values, in place. @param {Float64Array} values */
export function undelta(values) {
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) {
    sum += unzigzag(values[index]);
    values[index] = sum;
  }
  return values;
}

/** The header and the columns of one device. @param {string} text @returns {Promise<{header: any, column: (name: string) => Uint8Array}>} */
export async function unpack(text) {
  const bytes = await inflate(fromBase64(text.trim()));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = new Map();
  let at = 4 + length;
  for (const [name, size] of header.columns) {
    columns.set(name, bytes.subarray(at, at + size));
    at += size;
  }
  return { header, column: (name) => columns.get(name) || new Uint8Array(0) };
}
