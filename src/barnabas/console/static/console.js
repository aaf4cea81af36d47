"use strict";

// Draw the charts of a page, and fetch new values every few seconds.
(() => {
  const INTERVAL_MS = 5000;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function newChart(place) {
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 } };
    return new uPlot(
      {
        width: place.clientWidth,
        height: place.clientHeight - 30,
        series: [{}, { label: place.dataset.label, stroke: color("--link"), width: 2 }],
        axes: [axis, { ...axis, size: 70 }],
        scales: { y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
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
