"use strict";

// Draw the charts of a page, and fetch new values every few seconds.
(() => {
  const INTERVAL_MS = 5000;
  const MIN_SPAN_S = 60;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function newChart(place) {
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 } };
    return new uPlot(
      {
        width: place.clientWidth,
        height: place.clientHeight - 30,
        series: [{}, { label: place.dataset.label, stroke: color("--link"), width: 2 }],
        axes: [axis, { ...axis, size: 70 }],
        scales: { x: { range: (_chart, low, high) => [Math.min(low ?? 0, (high ?? 0) - MIN_SPAN_S), high ?? 0] }, y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      },
      [[], []],
      place,
    );
  }

  async function refresh(place, chart) {
    if (document.hidden) return;
    const response = await fetch(place.dataset.chart, { headers: { accept: "application/json" } });
    if (!response.ok) return;
    const found = await response.json();
    chart.setData([found.times, found.values]);
    const last = found.values[found.values.length - 1];
    place.dataset.points = String(found.values.length);
    if (last !== undefined) place.setAttribute("aria-label", `${place.dataset.label}: ${Math.round(last)} now`);
  }

  for (const place of document.querySelectorAll("[data-chart]")) {
    const chart = newChart(place);
    const again = () => refresh(place, chart).catch(() => undefined);
    again();
    setInterval(again, INTERVAL_MS);
    addEventListener("resize", () => chart.setSize({ width: place.clientWidth, height: place.clientHeight - 30 }));
  }
})();

// Follow the new records of a topic.
(() => {
  const ROWS_MAX = 200;

  function rowOf(record) {
    const row = document.createElement("tr");
    const link = document.createElement("a");
    link.href = record.link;
    link.textContent = record.where;
    const place = document.createElement("td");
    place.append(link);
    row.append(place);
    for (const text of [record.time, record.key, record.value]) {
      const cell = document.createElement("td");
      const content = document.createElement("bdi");
      content.className = "data";
      content.textContent = text;
      cell.append(content);
      row.append(cell);
    }
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
  }

  for (const section of document.querySelectorAll("[data-live]")) {
    const button = section.querySelector("button");
    const log = section.querySelector("[role=log]");
    const body = section.querySelector("tbody");
    let source = null;
    button.addEventListener("click", () => {
      if (source) {
        source.close();
        source = null;
      } else {
        source = new EventSource(section.dataset.live);
        source.addEventListener("message", (message) => show(body, message));
        log.hidden = false;
      }
      button.setAttribute("aria-pressed", String(source !== null));
      button.textContent = source ? "Stop" : "Follow new records";
    });
  }
})();
