// A node workload: work.js N. Objects, strings, buffers outside the JS heap, zlib and crypto threads, a worker, a child.
const zlib = require("zlib"), crypto = require("crypto"), { Worker, isMainThread, parentPort } = require("worker_threads");
const { execFileSync } = require("child_process"), util = require("util");
if (!isMainThread) {
  parentPort.postMessage(Array.from({ length: 20000 }, (_, i) => "item " + i).join().length);
} else {
  (async () => {
    for (let round = 0; round < Number(process.argv[2]); round++) {
      const map = new Map();
      for (let i = 0; i < 60000; i++) map.set("k" + ((i * 7919) % 9001), { i, s: "v".repeat(i % 40), a: [i, i + 1] });
      const text = JSON.stringify([...map]);
      const buffers = [];
      for (let i = 0; i < 400; i++) buffers.push(Buffer.alloc(1000 + i * 200, i));
      const hash = crypto.createHash("sha256").update(Buffer.concat(buffers)).digest("hex");
      const packed = await Promise.all([1, 2, 3, 4].map((k) => util.promisify(zlib.deflate)(text.slice(0, k * 200000))));
      const back = packed.map((p) => zlib.inflateSync(p).length);
      const key = await util.promisify(crypto.pbkdf2)("pass", "salt", 2000, 32, "sha256");
      const fromWorker = await new Promise((done) => new Worker(__filename).on("message", done));
      console.log(text.length, hash, back.join(), key.toString("hex"), fromWorker);
      console.log(String(execFileSync("echo", ["from", "child"])).trim());
    }
    process.exitCode = 5;
  })();
}
