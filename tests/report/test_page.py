"""The page in a real browser: it loads without a complaint, asks nobody, and can be read, clicked and typed at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import browser
from tests.paper import rows as made

from openbook.figures import Chart, Table, svg
from openbook.paper import EXPERIMENTS, select
from openbook.paper.models import Models
from openbook.paper.page import write_page
from openbook.paper.reproduce import plan_reproduction
from openbook.paper.results import write_unit

LAPTOP = [experiment for experiment in EXPERIMENTS.values() if experiment.units("laptop")]
MADE_UP = {
    "sample-efficiency": made.efficiency(),
    "context-reliance": made.reliance(),
    "selective-internalisation": made.selective(0.14),
    "perturbation": made.perturbed(),
    "stitching": made.stitched({"anneal": made.WINDOWS, "fixed:0.2": made.WINDOWS}),
    "recovery": made.asked("not recovered"),
    "lemmas": made.lemmas(),
    "gap": made.gap(),
    "surrogate-dynamics": made.dynamics(),
    "gradient-accuracy": made.gradients(),
    "construction": made.construction(),
    "trainability": made.trained(),
    "construction-efficiency": made.built(),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of all experiments, from rows that are made up; one unit is damaged and many are missing."""
    out = tmp_path_factory.mktemp("results")
    planned = plan_reproduction([], "laptop", out)
    for experiment in planned.experiments:
        jobs = [job for job in planned.jobs if getattr(job, "experiment", "") == experiment.name]
        rows = MADE_UP.get(experiment.name)
        if rows is None:
            rows = experiment.run(jobs[0].unit.config, Models(out))  # type: ignore[union-attr]
        record = {"experiment": experiment.name, "scale": "laptop", "config": {"made": "up"}, "rows": rows}
        taught_at = [{"commit": "c0ffee" * 7, "changed": True}, None]
        write_unit(jobs[0].path, {**record, "seconds": 1.0, "cpu_seconds": 1.0, "taught_at": taught_at})
    damaged = [job for job in planned.jobs if getattr(job, "experiment", "") == "gap"][1].path  # type: ignore[union-attr]
    damaged.write_text('{"rows": [')
    return write_page(planned, {"gap 3": "it broke"})


def test_the_page_is_one_small_file_with_every_chart_beside_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text) < 5_000_000
    written = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # without the libraries
    outside = re.findall(r"""(?:src|href)=["'](?!#|data:|charts/)([^"']*)""", written)
    assert outside == [] and "@import" not in text and "url(http" not in text and "//fonts" not in text
    charts = re.findall(r'id="chart-([\w-]+)"', text)
    drawn = [f for e in select(list(MADE_UP)) for f in e.draw(MADE_UP[e.name]) if isinstance(f, Chart)]
    assert sorted(charts) == sorted(chart.name for chart in drawn) and len(charts) > 15
    for name in charts:
        assert (page.parent / "charts" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert (page.parent / "charts" / f"{name}.svg").read_text().startswith("<svg")


def test_what_is_damaged_missing_or_failed_is_said(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "A result file is damaged and was left out" in text
    assert "units are missing" in text and "it broke" in text


@pytest.mark.parametrize("name", list(MADE_UP))
def test_units_that_are_missing_leave_charts_that_can_be_drawn(name: str) -> None:
    """Rows come and go by units; whatever is left, what is drawn of it has something in it."""
    (experiment,) = select([name])
    rows = list(MADE_UP[name])
    keys = ("curve", "arm", "algorithm", "model", "panel", "level", "update")
    for key in keys:
        for value in {row[key] for row in rows if isinstance(row.get(key), str | int)}:
            for item in experiment.draw([row for row in rows if row.get(key) != value]):
                assert isinstance(item, Table) or (item.panels and svg(item).startswith("<svg"))


def test_every_number_has_its_origin_and_its_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for experiment in LAPTOP:
        assert f"openbook reproduce {experiment.name} --scale laptop --again" in text
    assert text.count("SHA-256") >= len(LAPTOP)
    assert text.count("taught at c0ffeec0ff with changes and installed package") == len(LAPTOP)


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Tab]:
    if browser.found() is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium` lets this test run")
    with browser.tab() as one:
        yield one


@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_loads_quietly_quickly_and_within_the_window(page: Path, tab: browser.Tab, width: int, dark: bool) -> None:
    tab.open(page, width, dark=dark)
    assert tab.complaints() == []
    assert [url for url in tab.requests() if not url.startswith("data:")] == [page.as_uri()]
    assert float(tab.run("document.documentElement.dataset.ready")) < 2000
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)"
    )
    assert tab.run("[...document.querySelectorAll('.plot svg')].every(s => s.getBoundingClientRect().height > 60)")
    smallest = "Math.min(...[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect().height))"
    assert tab.run(smallest) >= 8  # pixels: small, but letters
    live = tab.run("document.querySelectorAll('.plot.live').length")
    assert live < tab.run("document.querySelectorAll('.plot').length")  # those far below are pictures still
    tab.run(ALL_LIVE)
    assert tab.run("document.querySelectorAll('.plot:not(.live)').length") == 0
    assert tab.complaints() == [] and len(tab.requests()) == 1
    assert tab.run("document.documentElement.scrollWidth") <= width


# Every chart comes into the window, and Vega draws it.
ALL_LIVE = """(async () => {
  for (const plot of document.querySelectorAll(".plot")) {
    plot.scrollIntoView({behavior: "instant"});
    while (!plot.classList.contains("live")) await new Promise((done) => setTimeout(done, 20));
  }
})()"""


def test_a_chart_is_the_same_before_and_after_vega_draws_it(page: Path, tab: browser.Tab) -> None:
    """What is printed, or shown where no script runs, is the picture that the page carries."""
    tab.open(page)
    look = (
        "(() => { const svg = document.querySelector('#chart-stitching-anneal .plot svg'); "
        "return [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height, svg.querySelectorAll('path').length, "
        "[...svg.querySelectorAll('text')].map(t => t.textContent)]; })()"
    )
    before = tab.run(look)
    tab.run(ALL_LIVE)
    assert tab.run(look) == before and before[2] > 10


CONTRAST = """(() => {
  const part = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
  const light = (c) => .2126 * part(c[0]) + .7152 * part(c[1]) + .0722 * part(c[2]);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  let worst = 99, where = "";
  const all = "p, li, td, th, a, summary, figcaption, h1, h2, h3, .badge, button, caption, .plot text";
  for (const e of document.querySelectorAll(all)) {
    if (!e.textContent.trim() || e.closest("[disabled]") || e.disabled) continue;
    const drawn = e instanceof SVGElement;
    const ink = rgb(drawn ? getComputedStyle(e).fill : getComputedStyle(e).color);
    const [a, b] = [light(ink), light(behind(drawn ? e.closest("div") : e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst) { worst = ratio; where = e.tagName + ": " + e.textContent.trim().slice(0, 40); }
  }
  return [worst, where];
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(page: Path, tab: browser.Tab, dark: bool) -> None:
    tab.open(page, dark=dark)
    worst, where = tab.run(CONTRAST)
    assert worst >= 4.5, where  # WCAG AA


def test_every_chart_has_words_and_every_heading_its_place(page: Path, tab: browser.Tab) -> None:
    tab.open(page)
    assert tab.run("[...document.querySelectorAll('.plot')].every(s => s.getAttribute('aria-label').length > 30)")
    assert tab.run("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.getAttribute('href')))")
    ids = tab.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)
    tables = "[...document.querySelectorAll('figure.chart')].map(f => f.querySelectorAll('details.numbers td').length)"
    assert min(tab.run(tables)) >= 3  # the numbers of every chart, for those who cannot see it


def test_the_translation_is_stepped_through_by_click_and_by_key(page: Path, tab: browser.Tab) -> None:
    tab.open(page)
    shown = "document.querySelector('.steps li.now h4').textContent"
    count = "[...document.querySelectorAll('.steps li')].filter(e => e.offsetHeight > 0).length"
    assert tab.run(shown) == "The string" and tab.run(count) == 1
    assert tab.run("document.querySelector('[data-go=back]').disabled")
    tab.click("[data-go=next]")
    assert tab.run(shown) == "Level 1: shift"
    tab.run("document.querySelector('.steps').focus()")
    tab.press("ArrowRight")
    assert tab.run(shown) == "Level 1: look up the pairs"
    tab.press("ArrowLeft")
    assert tab.run(shown) == "Level 1: shift"
    tab.press("End")
    assert tab.run("document.querySelector('[data-go=next]').disabled")
    assert "step 8 of 8" in tab.run("document.querySelector('.steps output').textContent")
    tab.press("Home")
    assert tab.run(shown) == "The string"


def test_a_chart_answers_pointer_and_keys_and_its_legend_hides_curves(page: Path, tab: browser.Tab) -> None:
    tab.open(page)
    tab.run(ALL_LIVE)
    figure = "document.querySelector('#chart-sample-efficiency')"
    tab.run(f"{figure}.querySelector('.plot').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    place = tab.run(
        f"(() => {{ const marks = {figure}.querySelectorAll('.mark-symbol path'); "
        "const b = marks[marks.length - 1].getBoundingClientRect(); "
        "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    tip = tab.run("document.querySelector('#vg-tooltip-element.visible').textContent")
    assert "samples" in tip and "%" in tip
    assert not tab.run(f"{figure}.querySelector('details.numbers').open")
    tab.run(f"{figure}.querySelector('.plot').focus()")
    tab.press("Enter")
    assert tab.run(f"{figure}.querySelector('details.numbers').open")
    assert tab.run("document.activeElement.textContent") == "The numbers of this chart"

    settled = "new Promise(done => setTimeout(done, 150))"
    marks = f"{figure}.querySelectorAll('.mark-symbol path').length"
    dashed = f"{figure}.querySelectorAll('.mark-line path[stroke-dasharray=\"5,4\"]').length"
    everything, published = tab.run(marks), tab.run(dashed)
    assert published > 0
    tab.click("#chart-sample-efficiency .legend button[data-key^=Annealing]")
    tab.run(settled)
    assert 0 < tab.run(marks) < everything
    tab.click("#chart-sample-efficiency .legend button[data-key^=Annealing]")
    tab.run(settled)
    assert tab.run(marks) == everything
    tab.click("#chart-sample-efficiency .legend button[data-key='*published*']")
    tab.run(settled)
    assert tab.run(dashed) == 0 < tab.run(marks)


def test_printed_everything_is_there_and_light(page: Path, tab: browser.Tab) -> None:
    tab.open(page, dark=True)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("[...document.querySelectorAll('.steps li')].every(e => e.offsetHeight > 0)")
    assert tab.run("document.querySelector('.controls').offsetHeight") == 0
    assert tab.run("[...document.querySelectorAll('.plot svg')].every(e => e.getBoundingClientRect().height > 60)")
    assert tab.run("getComputedStyle(document.querySelector('.plot svg text')).fill") in (
        "rgb(89, 89, 89)",
        "rgb(27, 27, 27)",
    )
    tab.call("Emulation.setEmulatedMedia", media="", features=[])


def test_the_guards_would_see_a_page_that_asks_or_complains(tmp_path: Path, tab: browser.Tab) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<html><body><img src='file:///nowhere.png'><script>console.error('no');"
        "document.documentElement.dataset.ready = '1'; setTimeout(() => nothing());</script></body></html>"
    )
    tab.open(bad)
    tab.run("new Promise(done => setTimeout(done, 200))")
    assert any("nowhere.png" in url for url in tab.requests())
    assert len(tab.complaints()) >= 2
