"""The report as a page with plots: SVG in HTML, and a picture of it by a headless browser."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import ceil, log10
from pathlib import Path

from tools.bench.goals import GROWTH, State
from tools.bench.report import COMPARED, TERMS, TITLES, UNITS, number, ratios, summary, verdicts
from tools.bench.results import Results

COLORS = {"pileus": "#2563eb", "go": "#d97706", "shipped": "#b91c1c", "bare": "#6b7280"}
STATES = {State.MET: "#15803d", State.MISSED: "#b91c1c", State.UNKNOWN: "#6b7280"}
PLOTTED = ("wall", "cpu", "peak", "api_cpu", "calls")
STYLE = """
body { font: 15px/1.45 "DejaVu Sans", system-ui, sans-serif; margin: 24px; color: #111;
  background: #fff; max-width: 1100px }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 18px; margin: 28px 0 6px }
p { margin: 4px 0 } .about { color: #555 } table { border-collapse: collapse }
td:first-child { white-space: nowrap }
td, th { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid #e5e7eb }
svg text { font-size: 12px; fill: #111 } pre { font-size: 11px; white-space: pre-wrap }
.keys span { display: inline-block; margin-right: 18px }
dt { font-weight: 600 } dd { margin: 0 0 6px }
.wide { overflow-x: auto } .plots svg { max-width: 100% }
.part { display: grid; grid-template-columns: 220px 1fr; font-size: 12px; margin-bottom: 12px }
.bars { padding-right: 90px } .bar { position: relative; height: 18px }
.bar * { position: absolute; white-space: nowrap } .bar b { top: 2px; height: 14px }
.bar u { top: 8px; height: 1px; background: #111 } .bar span { padding-left: 8px }
@media (max-width: 700px) {
  body { margin: 12px } td:first-child { white-space: normal } td { vertical-align: top }
  .part { display: block } .bars { padding-right: 76px }
}
"""


def page(results: Results) -> str:
    """Returns the whole page."""
    about = " · ".join(f"{key}: {value}" for key, value in results.about.items())
    keys = "".join(
        f'<span style="color:{color}">■ {TITLES[side]}</span>' for side, color in COLORS.items()
    )
    sections = [
        _worse(results),
        _goals(results),
        *map(_bars_of(results), PLOTTED),
        _growth(results),
    ]
    text = escape("\n".join(summary(results)))
    terms = "".join(
        f"<dt>{escape(term)}</dt><dd>{escape(meaning.replace('`', ''))}</dd>"
        for term, meaning in TERMS.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pileus beside Go</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><body><h1>Pileus beside the Go manager</h1>"
        f'<p class="about">{escape(about)}</p><p class="keys">{keys}</p>'
        f"<h2>Terms</h2><dl>{terms}</dl>"
        f"{''.join(sections)}<h2>All figures</h2><details><summary>show</summary>"
        f"<pre>{text}</pre></details></body></html>\n"
    )


def _worse(results: Results) -> str:
    worse = [one for one in ratios(results) if one[3].middle > 1][:20]
    rows = "".join(
        f"<tr><td>{escape(part)}<td>{COMPARED[measure]}<td>{escape(str(ratio))} of {TITLES[over]}"
        for part, measure, over, ratio in worse
    )
    shown = rows or "<tr><td>nothing"
    return f'<h2>Worse than Go</h2><div class="wide"><table>{shown}</table></div>'


def _goals(results: Results) -> str:
    rows = "".join(
        f'<tr><td style="color:{STATES[one.state]}">{one.state}<td>{escape(one.goal)}'
        f"<td>{escape(one.measured)}"
        for one in verdicts(results)
    )
    return f'<h2>Goals</h2><div class="wide"><table>{rows}</table></div>'


def _bars_of(results: Results) -> Callable[[str], str]:
    def bars(measure: str) -> str:
        """Returns one plot: for each part a bar per side, as a share of the part's longest."""
        name, unit = COMPARED[measure], UNITS[measure]
        title = f"{name[0].upper()}{name[1:]}{f', {unit}' if unit else ''}"
        note = "medians; the line is the spread over repeats; each group has its own scale"
        drawn = "".join(
            f'<div class="part">{escape(part)}<div class="bars">{_bars(sides, unit)}</div></div>'
            for part, sides in _rows(results, measure)
        )
        return f"<h2>{title}</h2><p class=about>{note}</p>{drawn}"

    return bars


Side = tuple[str, float, float, float]
"""Name, median, lowest and highest value."""


def _rows(results: Results, measure: str) -> Iterator[tuple[str, list[Side]]]:
    for part in results.parts():
        sides: list[Side] = []
        for side in COLORS:
            found = results.values(part, side, measure)
            middle = results.middle(part, side, measure)
            if middle:
                sides.append((side, middle, min(found), max(found)))
        if any(high > 0 for *_, high in sides):
            yield part, sides


def _bars(sides: Sequence[Side], unit: str) -> str:
    """Returns a bar for each side, whose widths are shares of the page's: it fits any screen."""
    longest = max(high for *_, high in sides) / 100
    return "".join(
        f'<div class="bar"><b style="width:max(1px,{middle / longest:.2f}%);'
        f'background:{COLORS[side]}"></b>'
        f'<u style="left:{low / longest:.2f}%;width:{(high - low) / longest:.2f}%"></u>'
        f'<span style="left:{high / longest:.2f}%">{number(middle)} {unit}</span></div>'
        for side, middle, low, high in sides
    )


def _growth(results: Results) -> str:
    """Returns plots of time, CPU and memory over the number of nodes, both axes logarithmic."""
    plots = "".join(_curve(results, measure) for measure in ("wall", "cpu", "peak"))
    title = "<h2>Growth with the number of nodes</h2>"
    return f'{title}<div class="plots">{plots}</div>' if plots else ""


def _curve(results: Results, measure: str) -> str:
    lines = {
        side: [
            (size, value)
            for size in GROWTH
            if (value := results.middle(f"{size:,} nodes", side, measure))
        ]
        for side in ("pileus", "go")
    }
    values = [value for points in lines.values() for _, value in points]
    if not values:
        return ""
    width, height, left = 350, 260, 46
    low, high = log10(min(values)) - 0.1, log10(max(values)) + 0.1

    def x(size: float) -> float:
        return left + (log10(size) - 2.6) / 1.5 * (width - left - 20)

    def y(value: float) -> float:
        return height - 30 - (log10(value) - low) / (high - low) * (height - 60)

    ticks = [10.0**power for power in range(ceil(low), ceil(high))]
    drawn = "".join(
        f'<text x="0" y="{y(tick) + 4:.0f}">{tick:g}</text>'
        f'<line x1="{left}" x2="{width - 10}" y1="{y(tick):.0f}" y2="{y(tick):.0f}" stroke="#ddd"/>'
        for tick in ticks
    )
    drawn += "".join(f'<text x="{x(s) - 14:.0f}" y="{height - 8}">{s:,}</text>' for s in GROWTH)
    for side, points in lines.items():
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in points)
        drawn += f'<polyline points="{path}" fill="none" stroke="{COLORS[side]}" stroke-width="2"/>'
        drawn += "".join(
            f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3.5" fill="{COLORS[side]}"/>'
            for size, value in points
        )
    title = f'<text x="{left}" y="16">{COMPARED[measure]}, {UNITS[measure]}</text>'
    return f'<svg width="{width}" height="{height}">{title}{drawn}</svg>'


def picture(html: Path, png: Path) -> bool:
    """Draw the page with a headless browser. Returns False with a message if there is none."""
    found = subprocess.run(
        [sys.executable, "-m", "tools.get_browser"], check=False, stdout=subprocess.PIPE, text=True
    )
    if found.returncode:
        print("no picture: there is no headless browser (see above)", file=sys.stderr)
        return False
    command = [
        found.stdout.strip(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--screenshot={png}", f"--window-size=1150,{_height(html)}", html.resolve().as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=False, capture_output=True, timeout=120)
    return png.exists()


def _height(html: Path) -> int:
    """Returns a height in which the page fits: its plots, tables and text."""
    text = html.read_text()
    bars = text.count('class="bar"') * 18 + text.count('class="part"') * 12
    return bars + text.count("<tr>") * 30 + 1500
