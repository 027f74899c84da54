"use strict";
// What lies in the folder: every file is a script that hands deflated bytes to view(); so a page opened as a file reads it.

const NONE = 0, INNER = 1, POINTS = 2, LEAF = 4096, SIDE = 256, NOWHERE = 0xffffffff;
const waiting = new Map();

function view(text) {
  waiting.get(document.currentScript.dataset.path)(text);
}

function loadScript(path) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    const fail = () => { waiting.delete(path); element.remove(); reject(new Error(path + " cannot be read")); };
    waiting.set(path, (text) => { waiting.delete(path); resolve(text); });
    element.dataset.path = path;
    element.onerror = fail;
    element.onload = () => (waiting.has(path) ? fail() : element.remove());
    element.src = path;
    document.head.append(element);
  });
}

async function loadBytes(path) {
  const packed = Uint8Array.from(atob(await loadScript(path)), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// Arrays one behind the other, after a header in JSON.
class Payload {
  constructor(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    this.buffer = buffer;
    this.at = 4 + length;
    this.header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  }

  take(Type, count) {
    const end = this.at + count * Type.BYTES_PER_ELEMENT;
    const found = new Type(this.buffer.slice(this.at, end));
    this.at = end;
    return found;
  }

  texts(count) {
    const lengths = this.take(Uint16Array, count), starts = new Uint32Array(count + 1);
    for (let i = 0; i < count; i++) starts[i + 1] = starts[i] + lengths[i];
    const letters = this.take(Uint8Array, starts[count]), decoder = new TextDecoder();
    return (i) => decoder.decode(letters.subarray(starts[i], starts[i + 1]));
  }
}

// Of each pixel along the curve its place in a picture, row by row.
const CURVE = new Uint16Array(SIDE * SIDE);
for (let key = 0; key < CURVE.length; key++) {
  let x = 0, y = 0;
  for (let bit = 0; bit < 8; bit++) { x |= ((key >> (2 * bit)) & 1) << bit; y |= ((key >> (2 * bit + 1)) & 1) << bit; }
  CURVE[key] = y * SIDE + x;
}

class Node {
  constructor(name, x, y, first, [kind, count, bars]) {
    Object.assign(this, { name, x, y, first, kind, count, bars, level: name.length, size: 2 ** -name.length });
    this.quarters = null;  // of an inner node that was loaded
    this.tile = null;
    this.parts = [];  // of a leaf, its points
    this.asked = new Map();
    this.used = 0;
  }

  get there() { return this.kind === INNER ? this.tile !== null : this.parts[0] !== undefined; }
  get left() { return this.x * this.size; }
  get top() { return this.y * this.size; }

  quarter(place) { return this.quarters.find((one) => place < one.first + one.count); }
}

// One map: a folder of nodes and indexes.
class Chart {
  constructor(about) {
    this.about = about;
    this.layers = about.columns.filter((column) => column.kind !== "text");
    this.root = new Node("", 0, 0, 0, about.root);
    this.queue = [];
    this.busy = 0;
    this.held = new Set();
    this.frame = 0;
    this.onload = () => {};
  }

  // The data of a node, or of a part of a leaf; those that are asked for last come first, coarse before fine.
  load(node, part = 0) {
    if (!node.asked.has(part)) {
      node.asked.set(part, new Promise((resolve, reject) => this.queue.push({ node, part, resolve, reject })));
      this.next();
    }
    return node.asked.get(part);
  }

  next() {
    while (this.busy < 8 && this.queue.length) {
      this.queue.sort((a, b) => b.node.used - a.node.used || a.node.level - b.node.level);
      const task = this.queue.shift();
      this.busy++;
      this.read(task.node, task.part).then(task.resolve, (error) => { console.error(error.message); task.reject(error); })
        .finally(() => { this.busy--; this.next(); });
    }
  }

  path(kind, node, part) {
    const name = node.name || "r";
    return `${this.about.folder}/${kind}/${name.slice(0, 3)}/${name}${part ? "_" + part : ""}.js`;
  }

  async read(node, part) {
    const payload = new Payload(await loadBytes(this.path("t", node, part)));
    if (node.kind === INNER) this.readTile(node, payload); else node.parts[part] = this.readPoints(node, payload, part);
    this.held.add(node);
    node.used = Math.max(node.used, this.frame);
    this.forget();
    this.onload();
    return node;
  }

  readTile(node, payload) {
    const { quarters, pixels } = payload.header, mask = payload.take(Uint8Array, SIDE * SIDE / 8);
    const at = new Uint16Array(pixels);
    for (let key = 0, i = 0; key < CURVE.length; key++) if (mask[key >> 3] & (128 >> (key & 7))) at[i++] = CURVE[key];
    const planes = [payload.take(Uint8Array, pixels)];
    for (let i = 0; i < 2 * this.layers.length; i++) planes.push(payload.take(Uint8Array, pixels));
    let first = node.first;
    node.quarters = quarters.map((said, digit) => {
      const one = new Node(node.name + digit, 2 * node.x + (digit & 1), 2 * node.y + (digit >> 1), first, said);
      first += one.count;
      return one;
    });
    node.tile = { at, planes, images: new Map() };
  }

  readPoints(node, payload, part) {
    const n = payload.header.n, found = { n, first: node.first + part * LEAF, values: [], ids: null };
    for (const [axis, corner] of [["x", node.left], ["y", node.top]]) {
      found[axis] = Float64Array.from(payload.take(Uint16Array, n), (step) => corner + (step + 0.5) / 65536 * node.size);
    }
    found.rows = payload.take(Uint32Array, n);
    const types = { "<f4": Float32Array, "<f8": Float64Array, "<u2": Uint16Array };
    for (const column of this.about.columns) {
      if (column.kind === "text") { found.values.push(payload.texts(n)); continue; }
      const values = payload.take(types[column.dtype], n);
      found.values.push((i) => values[i]);
    }
    if (this.about.ids) found.ids = payload.texts(n);
    return found;
  }

  // Data of nodes that were not drawn for long are dropped; they are read again when they are needed.
  forget() {
    if (this.held.size <= 900) return;
    const old = [...this.held].sort((a, b) => a.used - b.used).slice(0, 300);
    for (const node of old) {
      if (node.used >= this.frame - 1) continue;
      this.held.delete(node);
      node.asked.clear();
      node.parts = [];
      if (node.tile) { node.tile = null; node.quarters = null; }
    }
  }

  // Where the row of a place is: its points and which of them it is.
  async locate(place) {
    let node = this.root;
    while (node.kind === INNER) {
      if (!node.quarters) await this.load(node);
      node = node.quarter(place);
    }
    const part = Math.floor((place - node.first) / LEAF);
    if (!node.parts[part]) await this.load(node, part);
    const points = node.parts[part];
    return { node, part, points, i: place - points.first, place };
  }

  async placeOf(row) {
    if (!(row >= 0 && row < this.about.rows)) return NOWHERE;
    const file = Math.floor(row / this.about.indexed);
    const path = `${this.about.folder}/r/${Math.floor(file / 1000)}/${file}.js`;
    return new Uint32Array(await loadBytes(path))[row % this.about.indexed];
  }

  async placeOfId(id) {
    let hash = 0x811c9dc5;
    for (const letter of new TextEncoder().encode(id)) hash = Math.imul(hash ^ letter, 0x01000193) >>> 0;
    const file = hash % this.about.hashed;
    const pairs = new Uint32Array(await loadBytes(`${this.about.folder}/i/${Math.floor(file / 1000)}/${file}.js`));
    for (let i = 0; i < pairs.length / 2; i++) {
      if (pairs[i] !== hash) continue;
      const spot = await this.locate(pairs[pairs.length / 2 + i]);
      if (spot.points.ids(spot.i) === id) return spot.place;
    }
    return NOWHERE;
  }

  // A name, else the number of a row.
  async find(text) {
    if (this.about.ids) {
      const place = await this.placeOfId(text);
      if (place !== NOWHERE) return place;
    }
    return /^#?\d+$/.test(text) ? this.placeOf(Number(text.replace("#", ""))) : NOWHERE;
  }

  async neighbors(spot) {
    if (!this.about.near) return [];
    const steps = new Int32Array(await loadBytes(this.path("n", spot.node, spot.part))), k = this.about.near;
    const own = steps.subarray(spot.i * k, spot.i * k + k);
    return Promise.all([...own].filter((step) => step).map((step) => this.locate(spot.place + step)));
  }

  // All that lies in an area: told of whole nodes, or point by point.
  async within(area, onNode, onPoint, node = this.root) {
    if (!node.count) return;
    const touch = area.touches(node);
    if (touch === "outside") return;
    if (touch === "inside" && onNode && onNode(node)) return;
    if (node.kind === INNER) {
      if (!node.quarters) await this.load(node);
      for (const quarter of [...node.quarters]) await this.within(area, onNode, onPoint, quarter);
      return;
    }
    for (let part = 0; part < Math.ceil(node.count / LEAF); part++) {
      if (!node.parts[part]) await this.load(node, part);
      const points = node.parts[part];
      for (let i = 0; i < points.n; i++) {
        if (touch === "inside" || area.holds(points.x[i], points.y[i])) onPoint(points, i);
      }
    }
  }

  // From the square to coordinates, and back.
  toData(x, y) { const { low, unit } = this.about; return [low[0] + x * unit[0], low[1] + y * unit[1]]; }
  toSquare(x, y) { const { low, unit } = this.about; return [(x - low[0]) / unit[0], (y - low[1]) / unit[1]]; }

  nameOf(points, i) { return points.ids ? points.ids(i) : "row " + points.rows[i]; }

  textOf(column, value) {
    if (column.kind === "text") return value || "–";
    if (column.kind === "class") return value === 65535 ? "–" : column.classes[value];
    if (!Number.isFinite(value)) return "–";
    return column.kind === "date" ? new Date(value).toISOString().replace(/T00:00:00.000Z|.000Z/, "") : shorter(value);
  }
}

function shorter(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
}

// A polygon of the square.
class Area {
  constructor(corners) { this.corners = corners; }

  holds(x, y) {
    let inside = false;
    for (let i = 0, j = this.corners.length - 1; i < this.corners.length; j = i++) {
      const [ax, ay] = this.corners[i], [bx, by] = this.corners[j];
      if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
    }
    return inside;
  }

  touches({ left, top, size }) {
    const right = left + size, bottom = top + size;
    for (let i = 0, j = this.corners.length - 1; i < this.corners.length; j = i++) {
      if (crosses(this.corners[j], this.corners[i], left, top, right, bottom)) return "partly";
    }
    return this.holds(left + size / 2, top + size / 2) ? "inside" : "outside";
  }
}

// Whether a segment has a point in a box (Liang and Barsky).
function crosses([ax, ay], [bx, by], left, top, right, bottom) {
  let from = 0, to = 1;
  for (const [step, room] of [[ax - bx, ax - left], [bx - ax, right - ax], [ay - by, ay - top], [by - ay, bottom - ay]]) {
    if (step === 0) { if (room < 0) return false; continue; }
    const share = room / step;
    if (step < 0) from = Math.max(from, share); else to = Math.min(to, share);
    if (from > to) return false;
  }
  return true;
}
