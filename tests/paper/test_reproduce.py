"""Plans: what there is to do, what is done already, what was damaged, and what a call that was cut short leaves."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from openbook.base.errors import InputError
from openbook.curriculum import PRESETS, curriculum_named
from openbook.paper import EXPERIMENTS
from openbook.paper.curricula import CURVES, deep_student
from openbook.paper.experiment import SCALES, TaughtModel
from openbook.paper.jobs import RowsJob, TrainJob, reader_job, teach_job
from openbook.paper.models import Models, reader_flags, taught_student
from openbook.paper.reproduce import (
    JobProgress,
    Reproduction,
    plan_reproduction,
    run_missing,
    with_neighbours,
)
from openbook.paper.results import KEYS, read_unit, write_unit
from openbook.paper.sample_efficiency import ALL_WEIGHTS
from openbook.paper.study import load_study
from openbook.training.folder import RunFolder
from openbook.training.resolve import resolve
from openbook.training.settings import read_yaml

STUDIES = {
    study.name: study for study in map(load_study, sorted((Path(__file__).parents[2] / "studies").glob("*.yaml")))
}

CHEAP = ["translation", "surrogate-dynamics"]


def done(names: list[str], out: Path) -> list[str]:
    """Do what is missing; the names of the jobs that were done."""
    return [
        event.key
        for event, _ in run_missing(plan_reproduction(names, "smoke", out).missing(), 1, out)
        if event.kind == "done"
    ]


def test_what_is_done_is_left_alone_and_what_was_damaged_is_done_again(tmp_path: Path) -> None:
    assert len(done(CHEAP, tmp_path)) == 4
    assert plan_reproduction(CHEAP, "smoke", tmp_path).missing() == []
    files = sorted((tmp_path / "rows").rglob("*.json"))
    before = {path: path.stat().st_mtime_ns for path in files}
    files[0].write_text(files[0].read_text()[:100])  # half of it is gone
    planned = plan_reproduction(CHEAP, "smoke", tmp_path)
    damaged = [line for experiment in planned.experiments for line in planned.results(experiment).damaged]
    assert len(damaged) == 1 and "not readable as JSON" in damaged[0]
    assert len(done(CHEAP, tmp_path)) == 1
    assert {path for path in files if path.stat().st_mtime_ns != before[path]} == {files[0]}


def test_a_unit_holds_its_provenance(tmp_path: Path) -> None:
    done(["translation"], tmp_path)
    (path,) = (tmp_path / "rows").rglob("*.json")
    record = read_unit(path)
    assert isinstance(record, dict)
    assert record["config"]["seed"] == 0 and record["scale"] == "smoke" and record["experiment"] == "translation"
    assert record["environment"]["versions"]["openbook"] and record["cpu_seconds"] <= record["budget_seconds"]
    assert "git" in record["environment"] and len(record["sha256"]) == 64


@pytest.mark.parametrize("text", ["[]", "{}", '{"rows": 1}', "null", '{"experiment": "x", "rows": [1]}'])
def test_a_file_that_is_json_but_no_unit_is_not_used(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert isinstance(read_unit(path), str)


def test_rows_of_another_version_of_an_experiment_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(["translation"], tmp_path)
    experiment = EXPERIMENTS["translation"]
    newer = [replace(experiment, version=experiment.version + 1)]
    monkeypatch.setattr("openbook.paper.reproduce.select", lambda names: newer)
    assert len(plan_reproduction(["translation"], "smoke", tmp_path).missing()) == 1


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_has_a_plan_that_fits_together(scale: str, tmp_path: Path) -> None:
    planned = plan_reproduction([], scale, tmp_path)  # type: ignore[arg-type]
    keys = [job.key for job in planned.jobs]
    assert len(set(keys)) == len(keys)
    assert all(need in keys for job in planned.jobs for need in job.needs)
    assert all(job.weight > 0 for job in planned.jobs)
    paths = [job.path for job in planned.jobs if isinstance(job, RowsJob)]
    assert len(set(paths)) == len(paths)
    for job in planned.jobs:
        if isinstance(job, RowsJob):
            assert json.loads(json.dumps(job.unit.to_json())) == job.unit.to_json()  # plain, as it comes back from disk


def test_the_laptop_scale_keeps_its_budget(tmp_path: Path) -> None:
    planned = plan_reproduction([], "laptop", tmp_path)
    reader = sum(job.weight for job in planned.jobs if job.key.startswith("reader"))
    assert sum(job.weight for job in planned.jobs) - reader <= 26 * 60  # CPU seconds, with the shipped readers
    left_out = set(EXPERIMENTS) - {e.name for e in planned.experiments}
    assert left_out == {
        "five-levels",
        "five-levels-ten",
        "context-reliance-five-levels",
        "selective-five-levels",
    }  # they take hours
    assert all(planned.row_jobs(experiment) for experiment in planned.experiments)
    with pytest.raises(InputError, match=r"nothing at scale laptop: use --scale overnight"):
        plan_reproduction(["five-levels"], "laptop", tmp_path)


def test_the_papers_models_are_configs_that_hold(tmp_path: Path) -> None:
    planned = plan_reproduction([], "paper", tmp_path)
    taught = {str(m): m for job in planned.jobs if isinstance(job, RowsJob) for m in job.unit.learned}
    models = list(taught.values())
    assert len(models) == sum(job.key.startswith("teach") for job in planned.jobs) > 70
    seen = {(model.base, model.settings["curriculum"], model.reader) for model in models}
    assert len(seen) >= 12
    for model in [model for model in models if model.settings["samples"] in (100_000, 500_000)]:
        config = planned.models.config(model)
        assert config.samples == model.settings["samples"] and config.model.layers == 28


def test_models_are_shared_between_experiments(tmp_path: Path) -> None:
    alone = plan_reproduction(["stitching"], "laptop", tmp_path)
    both = plan_reproduction(["stitching", "sample-efficiency", "context-reliance"], "laptop", tmp_path)
    taught_alone = {job.key for job in alone.jobs if isinstance(job, TrainJob)}
    assert taught_alone <= {job.key for job in both.jobs if isinstance(job, TrainJob)}
    assert sum(job.key in taught_alone for job in both.jobs) == len(taught_alone)


def test_another_reader_makes_other_models(tmp_path: Path) -> None:
    model = taught_student("anneal", 100)
    places = set()
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "openbook_student", "depth": 3, "chars": 8}')
        (folder / "model.safetensors").write_text(name)
        places.add(Models(tmp_path / "models", folder).place(model).name)
    assert len(places) == 2


def test_a_reader_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no scale .labtop.*did you mean .laptop"):
        plan_reproduction([], "labtop", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a student"):
        plan_reproduction([], "laptop", tmp_path, tmp_path)
    with pytest.raises(InputError, match="did you mean 'gap'"):
        plan_reproduction(["gapp"], "laptop", tmp_path)


def test_a_reader_that_cannot_read_is_not_used_however_often_one_asks(tmp_path: Path) -> None:
    """Its course has ended and its folder is whole, so only what its exam found speaks against it."""
    models = Models(tmp_path)
    config = models.reader_config("student-3-4").model_dump(mode="json")
    made = RunFolder.create(tmp_path / "student-3-4", config, {})
    made.finish({"capable": False, "accuracy": {"open_book": 0.4}})
    job = reader_job(models, "student-3-4")
    assert made.finished and not job.done()
    made.finish({"capable": True, "accuracy": {"open_book": 1.0}})
    assert job.done()


def test_what_was_made_with_settings_that_changed_since_is_refused_and_its_rows_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model names a config and a preset, and what these say changes with time."""
    model, models = deep_student("anneal", 16_000), Models(tmp_path / "models")
    made = RunFolder.create(models.place(model), models.config(model).model_dump(mode="json"), {})
    made.finish({})
    reader = RunFolder.create(
        models.folder / "student-5-8", models.reader_config("student-5-8").model_dump(mode="json"), {}
    )
    reader.finish({"capable": True})

    def taught() -> bool:
        return teach_job(models, model).done()

    def reads() -> bool:
        return reader_job(models, "student-5-8").done()

    assert taught() and reads()
    before = _row_paths(tmp_path)
    patient = PRESETS["patient"]
    assert isinstance(patient, dict)
    monkeypatch.setitem(patient, "lean", 3.0)
    with pytest.raises(InputError, match=r"with other settings: curriculum.lean was 6.0, is 3.0"):
        taught()
    shape = {"task.depth": 5, "task.chars": 8}
    monkeypatch.setattr("openbook.paper.models.reading_task", lambda name: {**shape, "reading.ends": 0.125})
    with pytest.raises(
        InputError, match=r"student-5-8 is finished, but with other settings: reading.ends was None, is 0.125"
    ):
        reads()
    changed = _row_paths(tmp_path)
    assert {name for name in before if before[name] != changed[name]} == {"anneal", "wrong-context", "no-icl"}


def _row_paths(out: Path) -> dict[str, Path]:
    """Where the rows of each curve of five levels are kept, of 16,000 examples and seed 0."""
    return {
        job.unit.config["curve"]: job.path
        for job in plan_reproduction(["five-levels"], "overnight", out).jobs
        if isinstance(job, RowsJob) and (job.unit.config["samples"], job.unit.config["seed"]) == (16_000, 0)
    }


def test_five_levels_are_taught_as_their_table_says(tmp_path: Path) -> None:
    models = Models(tmp_path)
    assert reader_flags("student-5-8") == ["--depth", "5", "--chars", "8"]
    assert reader_flags("student-5-10") == ["--depth", "5", "--chars", "10"]
    assert reader_flags("writer-2-8") == ["--depth", "2", "--chars", "8", "--set", "task.text=pairs"]
    planned = EXPERIMENTS["five-levels-ten"].units("overnight")
    runs = Counter((unit.config["curve"], unit.config["samples"]) for unit in planned)
    assert runs == {**{(name, 28_000): 3 for name in CURVES}, ("anneal", 24_000): 3, ("no-context", 280_000): 2}
    (long, *_) = [models.config(unit.learned[0]) for unit in planned if unit.config["samples"] == 280_000]
    assert (long.training.freeze, long.training.matrix_learning_rate) == ([], 0.01)
    assert len({models.place(unit.learned[0]) for unit in planned}) == len(planned)
    units = {unit.config["curve"]: unit for unit in planned if unit.config["samples"] == 28_000}
    told = {name: models.config(unit.learned[0]) for name, unit in units.items() if name != "no-icl"}
    reads = [config.training for name, config in told.items()]
    assert {config.batch_size for config in reads} == {64} and all("self_attn" in config.freeze for config in reads)
    right, wrong = told["anneal"].curriculum, told["wrong-context"].curriculum
    assert wrong.wrong and not right.wrong and wrong.drop == right.drop
    assert told["fixed:0.2"].curriculum.drop != right.drop and told["no-context"].curriculum.drop != right.drop
    unread = models.config(units["no-icl"].config["learned"][0])
    assert unread.training.freeze == [] and unread.task is not None and unread.task.chars == 10


def test_five_levels_have_three_seeds_and_plain_fine_tuning_many_times_as_much(tmp_path: Path) -> None:
    units = [unit.config for unit in EXPERIMENTS["five-levels"].units("overnight")]
    runs = Counter((unit["curve"], unit["samples"]) for unit in units)
    sizes = [
        ("anneal", 12_000),
        ("anneal", 20_000),
        ("no-context", 160_000),
        ("no-context", 320_000),
        ("fixed:0.2", 64_000),
    ]
    thrice = [*((name, 16_000) for name in CURVES), *sizes]
    once = [("anneal", 32_000), ("fixed:0.2", 32_000), ("no-context", 128_000)]
    assert runs == {**dict.fromkeys(thrice, 3), **dict.fromkeys(once, 1)}
    models = Models(tmp_path)
    assert len({models.place(unit["learned"][0]) for unit in units}) == len(units)
    told = {(u["curve"], u["samples"], u["seed"]): models.config(u["learned"][0]) for u in units}
    assert {config.task.codebook for config in told.values() if config.task} == {0, 1, 2}
    as_shipped = resolve(read_yaml("student-deep"))
    assert told["anneal", 20_000, 0].samples == as_shipped.samples
    assert told["anneal", 16_000, 0].curriculum == as_shipped.curriculum
    same = ("matrix_learning_rate", "decay", "warmup", "batch_size", "freeze")
    trained = told["anneal", 16_000, 0].training
    assert [getattr(trained, name) for name in same] == [getattr(as_shipped.training, name) for name in same]
    for seed in range(3):
        longer = {size: told["no-context", size, seed].training for size in (160_000, 320_000)}
        assert all(training.freeze == [] for training in longer.values())
        assert [training.matrix_learning_rate for training in longer.values()] == [0.005, 0.01]
        assert [training.warmup * size for size, training in longer.items()] == [9600, 9600]


@pytest.mark.parametrize(
    ("search", "figure"),
    [
        ("sample-efficiency-rates", "sample-efficiency"),
        ("five-levels-rates", "five-levels"),
        ("five-levels-ten-rates", "five-levels-ten"),
    ],
)
def test_curves_are_searched_around_the_rate_they_have(search: str, figure: str, tmp_path: Path) -> None:
    models = Models(tmp_path)

    def rate(model: TaughtModel) -> float:
        return models.config(model).training.matrix_learning_rate or 0.0

    searched, planned = STUDIES[search].units("overnight"), EXPERIMENTS[figure].units("overnight")
    rates = {name: [rate(unit.learned[0]) for unit in searched if unit.config["curve"] == name] for name in CURVES}
    assert all(found and found == sorted(set(found)) for found in rates.values())
    for name in ("anneal", "fixed:0.2", "no-context"):
        has = next(rate(unit.learned[0]) for unit in planned if unit.config["curve"] == name)
        assert rates[name][0] < has < rates[name][-1] and has in rates[name]
    described = [str(job) for job in plan_studies([search], tmp_path).jobs]
    assert len(set(described)) == len(described)  # each is told from the next
    places, shown = ({models.place(unit.learned[0]) for unit in units} for units in (searched, planned))
    if figure == "sample-efficiency":  # where the search has a seed of its own
        assert {unit.config["seed"] for unit in searched}.isdisjoint(unit.config["seed"] for unit in planned)
    assert len(places & shown) == (0 if figure == "sample-efficiency" else len(CURVES))  # nothing is taught twice


def plan_studies(names: list[str], out: Path) -> Reproduction:
    return plan_reproduction([], "overnight", out, studies=[STUDIES[name] for name in names])


def test_all_six_curves_are_asked_how_much_they_lean_on_the_book(tmp_path: Path) -> None:
    models = Models(tmp_path)
    for experiment, figure in (
        ("context-reliance", "sample-efficiency"),
        ("context-reliance-five-levels", "five-levels-ten"),
    ):
        units = EXPERIMENTS[experiment].units("overnight")
        assert [unit.config["model"] for unit in units] == ["reader", *CURVES]
        shown = {models.place(unit.learned[0]) for unit in EXPERIMENTS[figure].units("overnight")}
        assert {models.place(unit.learned[0]) for unit in units} <= shown  # nothing is taught for it alone


def test_plain_fine_tuning_is_searched_where_it_has_the_most(tmp_path: Path) -> None:
    """Nothing is taught for it but plain fine-tuning at another rate, or warmed up for as many steps as the longest."""
    models = Models(tmp_path)
    units = [unit.config for unit in STUDIES["five-levels-plain"].units("overnight")]
    shown = {models.place(unit.learned[0]) for unit in EXPERIMENTS["five-levels"].units("overnight")}
    alone = [unit for unit in units if models.place(unit["learned"][0]) not in shown]
    told = [(unit["curve"], unit["samples"], unit["seed"]) for unit in alone]
    seeds = {(160_000, "usual"): [0, 1, 2], (160_000, "warmed"): [1], (320_000, "fast"): [0, 1, 2]}
    assert told == [("no-context", size, seed) for (size, _), found in seeds.items() for seed in found]
    named = {
        "slow": next(unit["learned"][0] for unit in units if (unit["samples"], unit["seed"]) == (160_000, 1)),
        "usual": alone[1]["learned"][0],
        "warmed": alone[3]["learned"][0],
        "fast": alone[5]["learned"][0],
        "longest": deep_student("no-context", 320_000, seed=1, **ALL_WEIGHTS),
    }
    settings = {name: models.config(spec).model_dump() for name, spec in named.items()}
    assert {
        name: (config["training"].pop("matrix_learning_rate"), config["training"].pop("warmup") * config.pop("samples"))
        for name, config in settings.items()
    } == {
        "slow": (0.005, 9600),
        "usual": (0.01, 4800),
        "warmed": (0.01, 9600),
        "fast": (0.02, 9600),
        "longest": (0.01, 9600),
    }
    assert all(config == settings["usual"] for config in settings.values())  # in all else they are the same


def test_a_brief_book_has_what_is_needed_and_all_else_is_as_usual(tmp_path: Path) -> None:
    """Annealing with the config that users have, plain fine-tuning with ten times as many."""
    models = Models(tmp_path)
    units = [unit.config for unit in STUDIES["five-levels-brief"].units("overnight")]
    told = [(unit["curve"], unit["samples"], unit["seed"]) for unit in units]
    sizes = [*(("anneal", size) for size in (10_000, 12_800, 16_000, 12_800)), ("no-context", 128_000)]
    assert told == [(*size, seed) for size in sizes for seed in range(3)]
    annealed, controls, plain = units[:9], units[9:12], units[12:]
    as_shipped, usual = (resolve(read_yaml(name)) for name in ("student-brief", "student-deep"))
    for unit in annealed:
        config = models.config(unit["learned"][0])
        assert config.task is not None and config.task.codebook == config.seed == unit["seed"]
        assert config.curriculum == as_shipped.curriculum
        assert config.training.decay == as_shipped.training.decay
    for unit, control in zip(annealed[3:6], controls, strict=True):
        one, other = (models.config(of["learned"][0]) for of in (unit, control))
        assert one == other.model_copy(update={"curriculum": other.curriculum.model_copy(update={"others": 0})})
        assert other.curriculum.others == usual.curriculum.others == 0.25
    assert as_shipped.curriculum.others == 0 and as_shipped.curriculum.lean == usual.curriculum.lean
    assert as_shipped.training == usual.training.model_copy(update={"decay": 0.2})
    for unit in plain:
        assert unit["samples"] == 10 * (as_shipped.samples or 0) == 10 * controls[0]["samples"]
        training = models.config(unit["learned"][0]).training
        assert (training.freeze, training.matrix_learning_rate, training.warmup * unit["samples"]) == ([], 0.01, 9600)


def test_fewer_examples_have_as_many_more_passes(tmp_path: Path) -> None:
    models = Models(tmp_path)
    *annealed, plain = [models.config(unit.learned[0]) for unit in STUDIES["five-levels-passes"].units("overnight")]
    for config in annealed:
        assert (config.samples or 0) * config.training.epochs == 16_000
        assert config.curriculum == curriculum_named("patient")
        assert "self_attn" in config.training.freeze and config.training.matrix_learning_rate == 0.036
    told = [(config.samples, config.seed) for config in annealed]
    assert told == [(500, 0), (1000, 0), (1000, 1), (1000, 2), (8000, 0)]
    assert (plain.samples, plain.training.epochs, plain.curriculum) == (8000, 20, curriculum_named("no-context"))
    assert plain.training.freeze == [] and plain.training.matrix_learning_rate == 0.02


def test_half_of_each_of_five_levels_is_held_out_once(tmp_path: Path) -> None:
    units = EXPERIMENTS["selective-five-levels"].units("overnight")
    configs = [Models(tmp_path).config(unit.learned[0]) for unit in units]
    assert [config.task.held_out for config in configs if config.task] == [1, 2, 3, 4, 5]
    assert {config.samples for config in configs} == {20_000} and len({str(c.curriculum) for c in configs}) == 1


@pytest.mark.parametrize(
    ("seed", "said"), [(0, "openbook prepare --depth 5 --chars 8 (its weights are"), (1, "its we")]
)
def test_a_given_reader_is_named_by_what_made_it(seed: int, said: str, tmp_path: Path) -> None:
    config = Models(tmp_path).reader_config("student-5-8").model_dump(mode="json")
    reader = RunFolder.create(tmp_path / "reader", {**config, "seed": seed}, {})
    reader.model_folder.mkdir()
    shape = {"model_type": "openbook_student", "depth": 5, "chars": 8, "text": "composite"}
    (reader.model_folder / "config.json").write_text(json.dumps(shape))
    (reader.model_folder / "model.safetensors").write_text("weights")
    reader.finish({"capable": True})
    planned = plan_reproduction(["five-levels", "translation"], "overnight", tmp_path / "out", reader.folder)
    other, figure = map(planned.command, planned.experiments)
    assert figure.startswith(f"openbook reproduce five-levels --scale overnight --reader READER; READER: {said}")
    assert other == "openbook reproduce translation --scale overnight"  # which starts from no reader


def test_rows_of_a_given_reader_stay_on_the_page_beside_others(tmp_path: Path) -> None:
    reader = tmp_path / "reader"
    reader.mkdir()
    shape = {"model_type": "openbook_student", "depth": 5, "chars": 8, "text": "composite"}
    (reader / "config.json").write_text(json.dumps(shape))
    (reader / "model.safetensors").write_text("weights")
    out = tmp_path / "out"
    figure = plan_reproduction(["five-levels"], "overnight", out, reader)
    for job in figure.jobs:
        if isinstance(job, RowsJob) and job.unit.config["curve"] == "anneal":
            write_unit(job.path, {key: [] if key == "rows" else {} for key in KEYS})
    both = with_neighbours(plan_reproduction([], "overnight", out, reader, [STUDIES["five-levels-rates"]]))
    assert [experiment.name for experiment in both.experiments] == ["five-levels", "five-levels-rates"]
    kept = both.experiments[0]
    assert len(both.results(kept).units) == 10
    alone = with_neighbours(plan_reproduction(["translation"], "overnight", out))  # which starts from no reader
    assert "five-levels" not in {experiment.name for experiment in alone.experiments}


@pytest.mark.parametrize(("text", "name"), [("pairs", "writer-5-8"), ("letters", "speller-5-8")])
def test_a_reader_of_a_text_that_nobody_starts_from_is_named(text: str, name: str, tmp_path: Path) -> None:
    shape = {"model_type": "openbook_student", "depth": 5, "chars": 8, "text": text}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(InputError, match=f"is a {name}, but these experiments start from student-3-8"):
        plan_reproduction(["stitching"], "laptop", tmp_path / "out", tmp_path)


def test_a_second_call_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    jobs = plan_reproduction(CHEAP, "smoke", tmp_path).missing()
    first = run_missing(jobs, 1, tmp_path)
    next(first)
    with pytest.raises(InputError, match="another process is writing"):
        next(run_missing(jobs, 1, tmp_path))
    first.close()


def test_time_left_follows_the_pace(tmp_path: Path) -> None:
    planned = plan_reproduction(CHEAP, "smoke", tmp_path)
    progress = JobProgress(planned.jobs, 2)
    assert progress.seconds_left == pytest.approx(progress.total / 2)  # expected seconds, two at a time
    progress.started -= 10
    progress.shares = dict.fromkeys((job.key for job in planned.jobs), 0.5)
    assert progress.seconds_left == pytest.approx(10, rel=0.05)


@pytest.mark.slow
def test_a_training_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """The parent leaves during a training, as at Ctrl-C; the next call takes the run up and ends with the same rows."""
    names = ["sample-efficiency"]
    planned = plan_reproduction(names, "smoke", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        for event, _ in run_missing(planned.missing(), 1, tmp_path):
            if event.kind == "progress" and event.note == "training":
                raise KeyboardInterrupt
    assert planned.missing()
    begun = [job for job in planned.jobs if isinstance(job, TrainJob) and job.folder.exists()]
    assert begun and not any((tmp_path / "rows").rglob("*.json"))
    done(names, tmp_path)
    assert plan_reproduction(names, "smoke", tmp_path).missing() == []
    assert all(RunFolder(job.folder).finished for job in planned.jobs if isinstance(job, TrainJob))
    for unit in plan_reproduction(names, "smoke", tmp_path).results(planned.experiments[0]).units:
        (trained,) = [
            RunFolder(planned.models.folder / name).read("environment.json")["git"] for name in unit["models"]
        ]
        assert unit["taught_at"] == [trained]  # what taught a model may be another commit than what measures its rows
    other = tmp_path / "undisturbed"
    done(names, other)
    rows = [
        [
            {**row, "seconds": 0, "cpu_seconds": 0, "resumed_from": 0}
            for row in plan_reproduction(names, "smoke", out).results(planned.experiments[0]).rows
        ]
        for out in (tmp_path, other)
    ]
    assert rows[0] == rows[1]
