"""The curriculum: what is open at a position is a pure function of (seed, position)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from openbook.base.errors import InputError
from openbook.book import Example, ListSource
from openbook.curriculum import (
    HEADER,
    PRESETS,
    SPREADS,
    Curriculum,
    Opened,
    SamplingPlan,
    Schedule,
    choose,
    curriculum_named,
)
from openbook.task import Codebook
from openbook.task.source import Translations

DEPTH, CHARS, COUNT = 5, 4, 4000


@pytest.fixture(scope="module")
def task() -> Translations:
    return Translations(DEPTH, CHARS, COUNT, Codebook.sample(DEPTH, CHARS), lengths=(8, 20), text="compact")


def ragged(count: int = 30) -> ListSource:
    """Records with 0 to 3 sections of 0 to 5 pieces, of which some are needed."""
    records = []
    for k in range(count):
        book = {
            f"s{s}": [{"text": f"{k}.{s}.{p}", "needed": (k + s + p) % 3 > 0} for p in range((k * 7 + s * 3) % 6)]
            for s in range(k % 4)
        }
        records.append({"prompt": f"q{k}", "completion": f" a{k}", "privileged_context": book})
    return ListSource(records)


# ---- presets


def test_presets_by_name() -> None:
    assert curriculum_named("fixed").drop == curriculum_named("fixed:0.2").drop == Schedule.parse("0.2")
    assert curriculum_named("anneal", order="given").order == "given"
    assert curriculum_named("wrong-context") == curriculum_named("anneal", wrong=True)
    with pytest.raises(InputError, match="did you mean 'anneal'"):
        curriculum_named("aneal")
    with pytest.raises(InputError, match="takes no parameter"):
        curriculum_named("anneal:0.3")
    with pytest.raises(ValueError, match="between 0 and 1"):
        curriculum_named("fixed:3")
    with pytest.raises(ValueError, match="spred"):
        curriculum_named("anneal", spred="one")


def counts(plan: SamplingPlan, progress: float, window: int = 800) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At a progress of training: shown pieces, open pieces and needed ones that are open, [B, S] each."""
    first = min(int(progress * plan.total), plan.total - window)
    positions = np.arange(first, first + window)
    shelf, opened = plan.at(positions)
    assert isinstance(plan.curriculum, Curriculum)
    needed = shelf.needed.sum(-1)
    rest = shelf.pieces.shape[-1] - needed
    shown = needed + np.floor(plan.curriculum.others * rest + 1e-9).astype(int)
    flags = np.take_along_axis(shelf.needed, np.maximum(opened.slots, 0), axis=-1) & (opened.slots >= 0)
    return shown, (opened.slots >= 0).sum(-1), flags.sum(-1)


# The paper's annealing dropout: 0 % -> 100 % over the first 60 % of training, then 100 %; a fair coin decides whether
# all levels lose rules or one random level does.
@pytest.mark.parametrize("name", ["anneal", "wrong-context"])
@pytest.mark.parametrize("progress, rate", [(0.0, 0.0), (0.3, 0.5), (0.6, 1.0), (1.0, 1.0)])
def test_the_schedule_table_of_the_paper(task: Translations, name: str, progress: float, rate: float) -> None:
    steady = curriculum_named(name, drop=str(rate))  # the rate of that moment, held
    shown, opened, _ = counts(SamplingPlan(task, steady), progress)
    annealed = SamplingPlan(task, curriculum_named(name))
    assert float(annealed.curriculum.drop.at(progress)) == pytest.approx(rate)  # type: ignore[union-attr]
    closed = shown - opened
    full = np.floor(rate * shown + 1e-9).astype(int)
    everywhere = (closed == full).all(1)
    single = ((closed == full) | (closed == 0)).all(1) & ((closed > 0).sum(1) == 1)
    if rate == 0:
        assert (closed == 0).all()
    else:
        assert (everywhere ^ single).all()  # every example is one or the other
        assert 0.43 < everywhere.mean() < 0.57
        levels = Counter(np.argmax(closed[single] > 0, axis=1).tolist())
        assert set(levels) == set(range(DEPTH)) and min(levels.values()) > 0.1 * single.sum()


def test_annealing_follows_its_line_example_by_example(task: Translations) -> None:
    plan = SamplingPlan(task, curriculum_named("anneal", spread="all"))
    positions = np.arange(0, plan.total, 7)
    shelf, opened = plan.at(positions)
    needed = shelf.needed.sum(-1)
    shown = needed + (shelf.pieces.shape[-1] - needed) // 4
    rates = np.minimum(1, positions / plan.total / 0.6)[:, None]
    np.testing.assert_array_equal((opened.slots >= 0).sum(-1), shown - np.floor(rates * shown + 1e-9))


@pytest.mark.parametrize(
    "name, everywhere_closed",
    [("no-context", 1.0), ("no-dropout", 0.0), ("fixed:0.2", 0.2), ("fixed:0.5", 0.5)],
)
def test_steady_presets_close_the_same_share_throughout(
    task: Translations, name: str, everywhere_closed: float
) -> None:
    plan = SamplingPlan(task, curriculum_named(name, spread="all"))
    for progress in (0.0, 0.3, 1.0):
        shown, opened, needed = counts(plan, progress)
        np.testing.assert_array_equal(opened, shown - np.floor(everywhere_closed * shown + 1e-9))
        np.testing.assert_array_equal(opened, needed)  # nothing but needed pieces


def test_all_candidates_are_all_pieces(task: Translations) -> None:
    _, opened = SamplingPlan(task, Curriculum(candidates="all")).at(np.arange(50))
    assert (opened.slots >= 0).all()


def test_floor_is_not_fooled_by_rounding() -> None:
    book = [f"p{k}" for k in range(100)]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book}] * 2)
    _, opened = SamplingPlan(source, Curriculum(drop="0.29")).at(np.array([0, 1]))  # type: ignore[arg-type]
    assert (opened.slots >= 0).sum() == 2 * 71


def chi_square(observed: np.ndarray, expected: float) -> float:
    """How many standard deviations the chi-square statistic lies above its mean."""
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = observed.size - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("order", ["shuffled", "given"])
def test_every_piece_is_closed_equally_often(order: Any) -> None:
    size, total = 10, 6000
    book = [f"p{k}" for k in range(size)]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book}] * 2)
    plan = SamplingPlan(source, Curriculum(drop="0.3", order=order), epochs=total // 2)  # type: ignore[arg-type]
    _, opened = plan.at(np.arange(total))
    open_ = np.bincount(opened.slots[opened.slots >= 0], minlength=size)
    assert open_.sum() == 7 * total
    assert chi_square(total - open_, 0.3 * total) < 4
    subsets = Counter(tuple(sorted(set(range(size)) - set(opened.numbers(row)[0]))) for row in range(total))
    assert len(subsets) == 120  # every three of ten
    assert chi_square(np.array(list(subsets.values())), total / 120) < 4


def test_the_order_is_uniform_or_as_given() -> None:
    book = [f"p{k}" for k in range(4)]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book}])
    _, shuffled = SamplingPlan(source, Curriculum(), epochs=4800).at(np.arange(4800))
    orders = Counter(tuple(shuffled.numbers(row)[0]) for row in range(4800))
    assert len(orders) == 24 and chi_square(np.array(list(orders.values())), 200) < 4
    _, given_ = SamplingPlan(source, Curriculum(order="given"), epochs=5).at(np.arange(5))
    assert {tuple(given_.numbers(row)[0]) for row in range(5)} == {(0, 1, 2, 3)}


def test_the_others_that_are_shown_are_drawn_uniformly(task: Translations) -> None:
    shelf, opened = SamplingPlan(task, Curriculum(others=0.5)).at(np.arange(COUNT))
    shown = (opened.slots[..., None] == np.arange(CHARS**2)).any(-2)
    rest = ~shelf.needed
    rates = (shown & rest).sum(0)[rest.any(0)] / rest.sum(0)[rest.any(0)]
    assert rates.min() > 0.4 and rates.max() < 0.55  # floor takes a little from a half


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_a_share_is_right_on_average_where_it_is_made_whole_by_chance(pieces: int, rate: float) -> None:
    book = {name: [f"{name}{k}" for k in range(pieces)] for name in "AB"}
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book}] * 4000)
    closing = {
        way: SamplingPlan(source, Curriculum(candidates="all", drop=rate, rounding=way)) for way in ("floor", "chance")
    }  # type: ignore[arg-type]
    down, even = (
        pieces - (plan.at(np.arange(4000))[1].slots >= 0).sum(-1) for plan in (closing["floor"], closing["chance"])
    )
    assert (down == np.floor(rate * pieces + 1e-9)).all()
    assert (np.abs(even - rate * pieces) < 1).all() and abs(even.mean() - rate * pieces) < 0.03
    share = rate * pieces % 1
    if share > 0:  # sections are rounded apart from each other
        both = (even == np.ceil(rate * pieces)).all(1).mean()
        assert abs(both - share**2) < 0.04


def test_the_others_that_are_shown_are_a_share_on_average_too() -> None:
    book = [{"text": "x", "needed": False}]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book}] * 4000)
    shown = (SamplingPlan(source, Curriculum(others=0.25, rounding="chance")).at(np.arange(4000))[1].slots >= 0).mean()
    assert 0.22 < shown < 0.28


# ---- pure functions of the position


def opened_at(plan: SamplingPlan, positions: Sequence[int]) -> list[tuple[Any, ...]]:
    shelf, opened = plan.at(np.asarray(positions))
    rows = []
    for row in range(len(positions)):
        numbers = [(s, numbers) for s, numbers in enumerate(opened.numbers(row)) if numbers]
        book = tuple(tuple(shelf.texts(shelf.pieces[row, s][chosen])) for s, chosen in numbers)
        rows.append((tuple(shelf.texts(shelf.prompt[row])), book, int(opened.quiet[row])))
    return rows


CURRICULA = [*PRESETS, "one", "chance"]


def curriculum(name: str) -> Curriculum:
    rising: Any = {"others": 0.5, "drop": "0@0,1@1"}
    own = {"one": {**rising, "spread": "one"}, "chance": {**rising, "rounding": "chance"}}
    return Curriculum(**own[name]) if name in own else curriculum_named(name)


@pytest.mark.parametrize("name", CURRICULA)
@pytest.mark.parametrize("kind", ["task", "ragged"])
def test_a_position_does_not_depend_on_its_neighbours(name: str, kind: str, task: Translations) -> None:
    source = task if kind == "task" else ragged()
    plan = SamplingPlan(source, curriculum(name), seed=3, epochs=2, shuffle=True)
    positions = [plan.total - 1, 0, 17, 5, 29, 30, 3, 11, 7]
    together = opened_at(plan, positions)
    assert together == [opened_at(plan, [position])[0] for position in positions]
    assert together[::-1] == opened_at(plan, positions[::-1])


def test_an_order_does_not_depend_on_a_neighbour_with_a_longer_book() -> None:
    """Random numbers that are close to each other are told apart by all the bits that the example's own book leaves."""
    books = [[f"{k}" for k in range(60)], [f"{k}" for k in range(5000)]]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book} for book in books])
    opened = []
    for rows in ([0], [0, 1]):
        shelf = source.shelf(np.array(rows))
        drawn = np.zeros((len(rows), HEADER + shelf.pieces.shape[-1]), np.uint64)
        drawn[0, HEADER : HEADER + 60] = (60 - np.arange(60, dtype=np.uint64)) * np.uint64(512 << 32 | 512)
        chosen = choose(curriculum_named("no-dropout", order="shuffled"), shelf, np.zeros(len(rows)), drawn)
        opened.append(chosen.numbers(0)[0])
    assert opened[0] == opened[1] == list(range(60))[::-1]


def test_one_section_is_one_that_the_example_has() -> None:
    """Padding for neighbours with more sections must not swallow the section whose pieces are closed."""
    one = {"prompt": "q", "completion": "a", "privileged_context": {"A": ["x"] * 4}}
    many = {"prompt": "q", "completion": "a", "privileged_context": {c: ["x"] * 4 for c in "ABCDEFGH"}}
    plan = SamplingPlan(ListSource([one, many]), Curriculum(drop="1", spread="one"), epochs=200)  # type: ignore[arg-type]
    _, opened = plan.at(np.arange(400))
    assert (opened.slots[::2] < 0).all()
    assert ((opened.slots[1::2] >= 0).any(-1).sum(1) == 7).all()


@pytest.mark.parametrize("lean", [6.0, 1.0, 0.25])
def test_one_section_leans_to_the_first(lean: float) -> None:
    """As many times as often the first as the last, in a geometric series; of a book with one section, that one."""
    books = [{name: ["x"] * 4 for name in names} for names in ("A", "ABCDE")]
    source = ListSource([{"prompt": "q", "completion": "a", "privileged_context": book} for book in books])
    plan = SamplingPlan(source, Curriculum(drop="1", spread="one", lean=lean), epochs=20_000)  # type: ignore[arg-type]
    _, opened = plan.at(np.arange(40_000))
    closed = (opened.slots < 0).all(-1)
    assert closed[::2].all()
    assert (closed[1::2].sum(1) == 1).all()
    series = lean ** (-np.arange(5) / 4)
    assert closed[1::2].mean(0) == pytest.approx(series / series.sum(), abs=0.013)  # four standard errors


@pytest.mark.parametrize("lean", [0, -1, 5e-324, float("nan"), float("inf")])
def test_a_lean_that_is_none_is_refused(lean: float) -> None:
    with pytest.raises(ValueError, match="lean"):
        Curriculum(lean=lean)


def test_spread_over_time(task: Translations) -> None:
    """A schedule is the chance of closing one section only; its constants are the three names."""
    positions = np.arange(len(task))
    scheduled = SamplingPlan(task, Curriculum(drop="0.5", spread="1@0,1@0.5,0@0.5"))  # type: ignore[arg-type]
    _, opened = scheduled.at(positions)
    one, everywhere = (
        SamplingPlan(task, Curriculum(drop="0.5", spread=name)).at(positions)[1] for name in ("one", "all")
    )  # type: ignore[arg-type]
    half = len(task) // 2
    assert (opened.slots[:half] == one.slots[:half]).all()
    assert (opened.slots[half + 1 :] == everywhere.slots[half + 1 :]).all()
    for name, share in SPREADS.items():
        by_name, by_share = (
            SamplingPlan(task, Curriculum(drop="0.5", spread=x)).at(positions)[1] for x in (name, share)
        )  # type: ignore[arg-type]
        assert (by_name.slots == by_share.slots).all()


def test_seeds_differ_and_repeat(task: Translations) -> None:
    one, again, other = (
        opened_at(SamplingPlan(task, curriculum_named("anneal"), seed=s), range(40)) for s in (1, 1, 2)
    )
    assert one == again != other


def test_every_epoch_sees_every_example_once_in_a_new_order() -> None:
    plan = SamplingPlan(ragged(), curriculum_named("anneal"), epochs=3, shuffle=True)
    epochs = plan.indices(np.arange(90)).reshape(3, 30)
    assert (np.sort(epochs) == np.arange(30)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 3
    straight = SamplingPlan(ragged(), curriculum_named("anneal"), epochs=3)
    assert (straight.indices(np.arange(90)) == np.arange(90) % 30).all()


def test_silence_follows_its_schedule_word_by_word() -> None:
    record = {"prompt": "q", "completion": "a b c d e f g h i j: k", "thoughts": ["a b c d e f g h i j"], "answer": "k"}
    plan = SamplingPlan(ListSource([record]), Curriculum(silence="0@0.1,1@0.6"), epochs=100)  # type: ignore[arg-type]
    _, opened = plan.at(np.array([0, 10, 15, 35, 59, 60, 99]))
    assert opened.quiet.tolist() == [0, 0, 1, 5, 9, 10, 10]


# ---- corners


def test_positions_outside_training_are_refused(task: Translations) -> None:
    plan = SamplingPlan(task, curriculum_named("anneal"))
    for position in (-1, plan.total):
        with pytest.raises(InputError, match=f"positions are 0..{plan.total - 1}"):
            plan.at(np.array([position]))
    with pytest.raises(InputError, match="at least one"):
        SamplingPlan(task, curriculum_named("anneal"), epochs=0)
    with pytest.raises(InputError, match="4001 samples asked for, but the source has 4000"):
        SamplingPlan(task, curriculum_named("anneal"), samples=4001)


def test_one_record_without_a_book() -> None:
    source = ListSource([{"prompt": "q", "completion": "a"}])
    for name in ("anneal", "no-context", "fixed"):
        shelf, opened = SamplingPlan(source, curriculum_named(name), epochs=3).at(np.arange(3))
        assert opened.slots.shape == (3, 0, 0) and len(shelf) == 3
    with pytest.raises(InputError, match="all records have the same one"):
        SamplingPlan(source, curriculum_named("wrong-context"))


def test_a_curriculum_of_ones_own_is_called_with_the_example_its_progress_and_a_generator() -> None:
    source = ragged()
    seen: list[tuple[str, float, float]] = []

    def first_only(example: Example, progress: float, random: np.random.Generator) -> list[list[int]]:
        seen.append((example.prompt, progress, float(random.random())))
        return [[0] if section.pieces else [] for section in example.sections]

    plan = SamplingPlan(source, first_only, epochs=2)
    _, opened = plan.at(np.array([3, 45]))
    assert [(prompt, progress) for prompt, progress, _ in seen] == [("q3", 3 / 60), ("q15", 45 / 60)]
    assert [numbers for numbers in opened.numbers(0) if numbers] == [[0]] * sum(
        bool(s.pieces) for s in source.example(3).sections
    )
    draws = {position: draw for position, (_, _, draw) in zip((3, 45), seen, strict=True)}
    plan.at(np.array([45]))
    assert seen[-1][2] == draws[45] != draws[3]


@pytest.mark.parametrize(
    "chosen, complaint",
    [
        ([], "named 0 sections"),
        ([[0], [0], [0], [0], [0]], "named 5 sections"),
        ([[0], [9], []], "distinct numbers"),
        ([[0, 0], [], []], "distinct"),
    ],
)
def test_what_a_curriculum_of_ones_own_returns_is_checked(chosen: list[list[int]], complaint: str) -> None:
    plan = SamplingPlan(ragged(), lambda example, progress, random: chosen)
    with pytest.raises(InputError, match=f"position 3.*{complaint}"):
        plan.at(np.array([3]))


def test_numbers_leave_out_what_is_closed() -> None:
    opened = Opened(np.array([[[2, -1, 0], [-1, -1, -1]]]), np.array([0]))
    assert opened.numbers(0) == [[2, 0], []]


@pytest.mark.parametrize(
    ("progress", "closed", "alone"),
    [
        (0.0, 0.0, 1),
        (0.03, 0.25, 1),
        (0.2, 0.25, 1),
        (0.4, 1, 1),
        (0.58, 1, 1),
        (0.6, 0.3, 0.25),
        (0.78, 1, 0.25),
        (1, 1, 0.25),
    ],
)
def test_the_patient_curriculum_closes_one_section_before_it_closes_all(
    progress: float, closed: float, alone: float
) -> None:
    patient = curriculum_named("patient")
    assert float(patient.drop.at(progress)) == pytest.approx(closed)
    assert float(patient.alone(progress)) == pytest.approx(alone)
    assert patient.lean == 6
