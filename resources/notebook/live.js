// Draws what live_widget.py sends: two curves, layers by steps, findings. No library, nothing loaded from outside.
const COLOURS = { critical: "#c2410c", warning: "#9a6700", info: "#626b7a" };

function element(name, style, text = "") {
  const made = document.createElement(name);
  made.style.cssText = style;
  made.textContent = text;
  return made;
}

function drawCurve(canvas, curve) {
  const pen = canvas.getContext("2d"), { width, height } = canvas;
  pen.clearRect(0, 0, width, height);
  const known = curve.values.filter((value) => value !== null);
  if (!known.length) return;
  const log = Math.min(...known) > 0 && Math.max(...known) > 10 * Math.min(...known);
  const scaled = (value) => (log ? Math.log10(value) : value);
  const low = scaled(Math.min(...known)), high = scaled(Math.max(...known));
  const first = curve.steps[0], last = curve.steps[curve.steps.length - 1];
  const x = (step) => 60 + ((width - 70) * (step - first)) / Math.max(last - first, 1);
  const y = (value) => height - 18 - ((height - 30) * (scaled(value) - low)) / Math.max(high - low, 1e-12);
  pen.strokeStyle = "#0072b2";
  pen.beginPath();
  let drawing = false;
  curve.values.forEach((value, at) => {
    if (value === null) drawing = false;
    else if (drawing) pen.lineTo(x(curve.steps[at]), y(value));
    else { pen.moveTo(x(curve.steps[at]), y(value)); drawing = true; }
  });
  pen.stroke();
  pen.fillStyle = "#c2410c";
  curve.values.forEach((value, at) => value === null && pen.fillRect(x(curve.steps[at]) - 1, 4, 2, height - 22));
  pen.fillStyle = "#626b7a";
  pen.font = "11px sans-serif";
  pen.fillText(Math.max(...known).toPrecision(3), 4, 16);
  pen.fillText(Math.min(...known).toPrecision(3), 4, height - 20);
  pen.fillText(String(first), 60, height - 4);
  pen.fillText(String(last), width - 50, height - 4);
}

function drawCells(canvas, cells) {
  canvas.height = Math.max(8 * cells.length, 1);
  const pen = canvas.getContext("2d");
  const known = cells.flat().filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  cells.forEach((row, at) => row.forEach((value, column) => {
    const share = value === null ? 0 : (value - low) / Math.max(high - low, 1e-12);
    pen.fillStyle = value === null ? "#c2410c" : `hsl(205 70% ${92 - 62 * share}%)`;
    const left = 60 + ((canvas.width - 70) * column) / row.length;
    pen.fillRect(left, 8 * at, (canvas.width - 70) / row.length + 1, 7);
  }));
}

function render({ model, el }) {
  const box = element("div", "background:#fff;color:#1d2330;font:13px sans-serif;padding:8px;max-width:760px");
  el.appendChild(box);
  const canvases = {};
  const draw = () => {
    const shown = model.get("shown");
    box.replaceChildren(element("b", "", shown.head));
    for (const curve of shown.curves) {
      const canvas = (canvases[curve.name] ??= Object.assign(document.createElement("canvas"), { width: 740, height: 120 }));
      box.append(element("div", "color:#626b7a", curve.name), canvas);
      drawCurve(canvas, curve);
    }
    if (shown.cells.length) {
      const canvas = (canvases.cells ??= Object.assign(document.createElement("canvas"), { width: 740 }));
      box.append(element("div", "color:#626b7a", `gradient norm of ${shown.layers[0]} to ${shown.layers.at(-1)}`), canvas);
      drawCells(canvas, shown.cells);
    }
    for (const found of shown.findings) {
      const line = element("div", `border-left:3px solid ${COLOURS[found.severity]};padding-left:8px;margin-top:6px`);
      line.append(element("b", "", found.title), ` ${found.severity}, ${found.when}. ${found.evidence}`);
      box.append(line);
    }
  };
  model.on("change:shown", draw);
  draw();
}

export default { render };
