"use strict";

// Say that the console cannot show new values, and that it tries again.
const trouble = {
  say(text) {
    const place = document.getElementById("trouble");
    const words = `${text.trim().replace(/[.]$/, "")}. The page tries again every few seconds.`;
    if (place.textContent !== words) place.textContent = words;
    place.hidden = false;
  },
  end() {
    document.getElementById("trouble").hidden = true;
  },
  NO_CONSOLE: "The console does not answer",
};

(() => {
  addEventListener("htmx:responseError", (event) => trouble.say(event.detail.xhr.responseText || "The console has failed"));
  addEventListener("htmx:sendError", () => trouble.say(trouble.NO_CONSOLE));
  addEventListener("htmx:afterSwap", () => trouble.end());

  // A page that could not be shown loads again as soon as it can be.
  const RETRY_MS = 5000;
  if (document.querySelector("[data-retry]")) {
    setInterval(async () => {
      const response = await fetch(location.href).catch(() => null);
      if (response && response.ok) location.reload();
    }, RETRY_MS);
  }
})();

// Keep the focus where it is while a part of the page is replaced.
(() => {
  const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex]";
  let kept = null;

  const namesOf = (place) => [place.getAttribute("href"), place.getAttribute("aria-label"), place.textContent.trim()];
  const isSame = (one, other) => one.some((each, number) => each && each === other[number]);

  addEventListener("htmx:beforeSwap", (event) => {
    const place = document.activeElement;
    const part = event.detail.target;
    kept = null;
    if (part !== place && part.contains(place)) {
      const alike = [...part.querySelectorAll(CONTROLS)];
      kept = { part, number: alike.indexOf(place), names: namesOf(place) };
    }
  });
  addEventListener("htmx:afterSwap", () => {
    if (!kept || !kept.part.isConnected || document.activeElement !== document.body) return;
    const alike = [...kept.part.querySelectorAll(CONTROLS)];
    const same = [alike[kept.number], ...alike].find((each) => each && isSame(namesOf(each), kept.names));
    if (same) same.focus({ preventScroll: true });
    kept = null;
  });
})();

// Draw the charts of a page, and fetch new values every few seconds.
(() => {
  const INTERVAL_MS = 5000;
  const MIN_SPAN_S = 60;
  const HEIGHT = 170; // without the legend, whose lines depend on the width

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The range of the data: for a single point, uPlot would show years.
  function rangeOf(chart) {
    const times = chart.data[0] || [];
    const last = times.length ? times[times.length - 1] : Date.now() / 1000;
    return [Math.min(times.length ? times[0] : last, last - MIN_SPAN_S), last];
  }

  const newest = (chart, series) => chart.data[series][chart.data[series].length - 1];
  const timeText = (seconds) => (seconds === undefined ? "no values yet" : new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " "));
  const numberText = (value) => (value === undefined ? "no values yet" : value.toLocaleString("en", { maximumFractionDigits: 1 }));

  function newChart(place) {
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 } };
    const times = [
      [3600, "{HH}:{mm}", null, null, null, null, null, null, 1],
      [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
      [1, ":{ss}", "\n{HH}:{mm}", null, null, null, "\n{HH}:{mm}", null, 1],
    ];
    return new uPlot(
      {
        width: place.clientWidth,
        height: HEIGHT,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        series: [
          { label: "Time (UTC)", value: (chart, seconds) => timeText(seconds ?? newest(chart, 0)) },
          { label: place.dataset.label, stroke: color("--link"), width: 2, value: (chart, value) => numberText(value ?? newest(chart, 1)) },
        ],
        axes: [{ ...axis, values: times }, { ...axis, size: 70 }],
        scales: { x: { range: rangeOf }, y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      },
      [[], []],
      place,
    );
  }

  async function refresh(place, chart) {
    if (document.hidden) return;
    const response = await fetch(place.dataset.chart, { headers: { accept: "application/json" } });
    if (response.status === 401) location.assign("/sign-in");
    if (!response.ok) {
      trouble.say(await response.text());
      return;
    }
    trouble.end();
    const found = await response.json();
    chart.setData([found.times, found.values]);
    const last = found.values[found.values.length - 1];
    place.dataset.points = String(found.values.length);
    if (last !== undefined) place.setAttribute("aria-label", `${place.dataset.label}: ${Math.round(last)} now`);
  }

  for (const place of document.querySelectorAll("[data-chart]")) {
    const chart = newChart(place);
    const again = () => refresh(place, chart).catch(() => trouble.say(trouble.NO_CONSOLE));
    again();
    setInterval(again, INTERVAL_MS);
    addEventListener("resize", () => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
  }
})();

// Follow the new records of a topic.
(() => {
  const ROWS_MAX = 200;
  const RETRY_MS = 3000;

  function treeOf([name, text, children]) {
    const label = document.createElement("span");
    label.textContent = name ? `${name}${children.length ? "" : ":"} ${text}` : text;
    if (!children.length) return label;
    const node = document.createElement("details");
    const summary = document.createElement("summary");
    summary.append(label);
    const list = document.createElement("ul");
    for (const child of children) {
      const item = document.createElement("li");
      item.append(treeOf(child));
      list.append(item);
    }
    node.append(summary, list);
    return node;
  }

  function schemaOf(part) {
    const place = document.createElement("div");
    place.className = "schema";
    const name = document.createElement(part.schemaLink ? "a" : "span");
    if (part.schemaLink) name.href = part.schemaLink;
    name.textContent = part.schema;
    place.append(name, part.problem ? `: ${part.problem}` : "");
    return place;
  }

  function cellOf(part) {
    const cell = document.createElement("td");
    const content = document.createElement("bdi");
    content.className = "data";
    content.textContent = part.text;
    cell.append(content);
    if (part.tree && part.tree[2].length) {
      const tree = treeOf(part.tree);
      tree.className = "data";
      tree.firstElementChild.replaceChildren(content);
      cell.append(tree);
    }
    if (part.schema) cell.append(schemaOf(part));
    return cell;
  }

  function rowOf(record) {
    const row = document.createElement("tr");
    const link = document.createElement("a");
    link.href = record.link;
    link.textContent = record.where;
    const place = document.createElement("td");
    place.append(link);
    row.append(place);
    row.append(cellOf({ text: record.time }), cellOf(record.key), cellOf(record.value));
    return row;
  }

  function show(body, message) {
    const { records, skipped } = JSON.parse(message.data);
    for (const record of records) body.prepend(rowOf(record));
    while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
    if (skipped > 0) {
      const row = document.createElement("tr");
      const cell = document.createElement("td");
      cell.colSpan = 4;
      cell.textContent = `${skipped} more records are not shown`;
      row.append(cell);
      body.prepend(row);
    }
    body.closest("[role=log]").hidden = body.rows.length === 0;
  }

  for (const section of document.querySelectorAll("[data-live]")) {
    const button = section.querySelector("button");
    const status = section.querySelector("[role=status]");
    const body = section.querySelector("tbody");
    let follows = false;
    let source = null;
    let timer = 0;

    function close() {
      if (source) source.close();
      source = null;
      clearTimeout(timer);
    }

    function again(text) {
      close();
      status.textContent = `${text.replace(/[.]$/, "")}. Trying again.`;
      timer = setTimeout(open, RETRY_MS);
    }

    function open() {
      close();
      if (!follows || document.hidden) return; // a hidden page would take one of the browser's few connections
      source = new EventSource(section.dataset.live);
      source.addEventListener("message", (message) => {
        status.textContent = body.rows.length || JSON.parse(message.data).records.length ? "Following." : "Waiting for new records.";
        show(body, message);
      });
      source.addEventListener("problem", (message) => again(JSON.parse(message.data)));
      source.addEventListener("ended", () => location.assign("/sign-in"));
      source.addEventListener("error", () => again("The console sends no records"));
    }

    button.addEventListener("click", () => {
      follows = !follows;
      button.setAttribute("aria-pressed", String(follows));
      button.textContent = follows ? "Stop" : "Follow new records";
      status.textContent = follows ? "Connecting." : "";
      open();
    });
    addEventListener("visibilitychange", open);
  }
})();
