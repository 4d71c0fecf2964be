"""Configs: read, overridden, and refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import openbook
from openbook.base.errors import InputError
from openbook.curriculum import curriculum_named
from openbook.curriculum.schedule import Schedule
from openbook.training.config import RunConfig
from openbook.training.resolve import STAGE_ONE, configured, resolve
from openbook.training.settings import listed, places, read_yaml, shipped, validated


def read(tmp_path: Path, text: str | bytes, *settings: str, **flags: Any) -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return configured(path, settings, flags)


def test_a_file_settings_over_it_and_flags_over_those(tmp_path: Path) -> None:
    text = "seed: 1\ntraining: {epochs: 2, learning_rate: 1e-3, workers: 1}\ncurriculum: fixed:0.5\n"
    config = read(tmp_path, text, "training.epochs=3", "training.workers=2", **{"training.workers": 4, "seed": None})
    assert (config.seed, config.training.epochs, config.training.workers) == (1, 3, 4)
    assert config.training.learning_rate == 1e-3  # YAML reads 1e-3 as text
    assert config.curriculum == curriculum_named("fixed:0.5")


def test_a_base_lies_below_the_file_group_by_group(tmp_path: Path) -> None:
    base = {"task": {"codebook": "fresh", "chain": "explicit"}, "curriculum": {"drop": "0", "silence": "0@0.1,1@0.6"}}
    path = tmp_path / "run.yaml"
    path.write_text("task: {depth: 2}\n")
    config = configured(path, ["task.chain=silent", "curriculum.others=0.5"], {}, base)
    assert config.task is not None
    assert (config.task.depth, config.task.codebook, config.task.chain) == (2, "fresh", "silent")
    assert (config.curriculum.others, config.curriculum.silence) == (0.5, Schedule.parse("0@0.1,1@0.6"))
    path.write_text("curriculum: anneal\n")
    assert configured(path, [], {}, base).curriculum == curriculum_named("anneal")


def test_one_setting_of_a_named_curriculum_can_be_changed(tmp_path: Path) -> None:
    config = read(tmp_path, "curriculum: anneal\n", "curriculum.spread=one")
    assert config.curriculum == curriculum_named("anneal", spread="one")
    config = read(tmp_path, "seed: 1\n", "curriculum.spread=one", curriculum="fixed:0.5")  # by a flag
    assert config.curriculum == curriculum_named("fixed:0.5", spread="one")


def test_a_model_by_its_name(tmp_path: Path) -> None:
    config = read(tmp_path, "model: somewhere\n", "model.dtype=bfloat16")
    assert (config.model.path, config.model.dtype) == ("somewhere", "bfloat16")
    assert read(tmp_path, "model: somewhere\n").model.path == "somewhere"


@pytest.mark.parametrize(
    "given, meant",
    [
        ("epochs: 5", "training.epochs"),
        ("learning_rate: 5", "training.learning_rate"),
        ("max_length: 5", "training.max_length"),
        ("training: {seed: 5}", "seed"),
        ("training: {samples: 5}", "samples"),
    ],
)
def test_a_setting_that_stands_elsewhere_is_found_there(tmp_path: Path, given: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"is not a setting; did you mean '{meant}'"):
        read(tmp_path, given + "\n")


def test_a_preset_that_is_said_later_takes_the_place_of_what_a_preset_decides(tmp_path: Path) -> None:
    text = "curriculum: {preset: anneal, drop: '0@0,1@0.8', others: 0.5, order: given, silence: '0@0,1@0.5'}\n"
    result = read(tmp_path, text, "curriculum.preset=no-context").curriculum
    assert result == curriculum_named("no-context", order="given", silence="0@0,1@0.5")
    changed = read(tmp_path, text, "curriculum.preset=anneal", "curriculum.drop=0.5").curriculum
    assert changed == curriculum_named("anneal", drop="0.5", order="given", silence="0@0,1@0.5")
    explicit = configured(None, ["curriculum.preset=no-dropout"], {}, STAGE_ONE["chain-of-thought"])
    assert explicit.curriculum.silence.at(0.0) == 0 and explicit.curriculum.silence.at(1.0) == 1


def test_a_hint_does_not_lead_to_a_course(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'training\.lr' is not a setting") as caught:
        read(tmp_path, "training: {lr: 5}\n")
    assert "reading" not in str(caught.value)


def test_what_is_not_said_of_a_curriculum_is_as_in_annealing(tmp_path: Path) -> None:
    """A book that never closes because its order was set would be a trap."""
    for text, setting in (
        ("seed: 0\n", "curriculum.others=0.5"),
        ("data: f\n", "curriculum.silence=0@0,1@0.6"),
        ("data: f\n", "curriculum.drop=0@0,1@0.8"),
    ):
        result = read(tmp_path, text, setting).curriculum
        name, _, value = setting.removeprefix("curriculum.").partition("=")
        of_data = {"order": "given", "spread": "all", "rounding": "chance"} if "data" in text else {}
        assert result == curriculum_named("anneal", **{**of_data, name: value})
    assert read(tmp_path, "curriculum: {drop: 0.1}\n").curriculum.spread == "coin"


def test_defaults_depend_on_where_examples_and_model_come_from(tmp_path: Path) -> None:
    own, task = read(tmp_path, "data: facts.jsonl\n"), read(tmp_path, "seed: 0\n")
    assert (own.training.batch_size, own.training.shuffle, own.curriculum.order) == (8, True, "given")
    assert (task.training.batch_size, task.training.shuffle, task.curriculum.order) == (64, False, "shuffled")
    assert own.task is None and task.task is not None
    assert own.model.path == "smollm2-135m" and task.model.path is None
    for none in ("model: scratch", "model: {path: null}", "model: {hidden_size: 32}"):  # a new model is asked for
        scratch = read(tmp_path, f"data: facts.jsonl\n{none}\n")
        assert scratch.model.path is None and scratch.training.learning_rate == 1e-3
        assert (scratch.training.epochs, scratch.model.dtype) == (1, "float32")
    assert read(tmp_path, "model: {path: some/model}\n").training.learning_rate == 1e-4
    assert (
        read(tmp_path, "data: f\ntraining: {batch_size: 3}\ncurriculum: {order: shuffled}\n").training.batch_size == 3
    )


def test_a_book_of_ones_own_ends_fully_closed_and_bit_by_bit() -> None:
    for name in ("anneal", "fixed:0.2", "wrong-context"):
        own = resolve({"data": "facts.jsonl", "curriculum": name}).curriculum
        assert (own.spread, own.rounding, own.order) == ("all", "chance", "given")
        task = resolve({"curriculum": name}).curriculum
        assert (task.spread, task.rounding, task.order) == ("coin", "floor", "shuffled")  # as in the study
    patient = resolve({"data": "facts.jsonl", "curriculum": "patient"}).curriculum
    assert isinstance(patient.spread, Schedule) and patient.rounding == "chance"
    given = {"preset": "anneal", "spread": "coin", "rounding": "floor"}
    own = resolve({"data": "facts.jsonl", "curriculum": given}).curriculum
    assert (own.spread, own.rounding) == ("coin", "floor")


def test_a_config_survives_its_own_record() -> None:
    for values in (
        {},
        {"data": "f.jsonl", "curriculum": {"drop": "0@0,0.123456789@0.3", "spread": "1@0,0@0.7"}},
        {"model": {"lora": {"rank": 2}}},
    ):
        config = resolve(values)
        record = config.model_dump(mode="json")
        assert resolve(record) == config == validated(RunConfig, record)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("traning: {epochs: 2}", "'traning' is not a setting; did you mean 'training'?"),
        ("training: {learnin_rate: 1}", "'training.learnin_rate' is not a setting; did you mean 'learning_rate'?"),
        ("task: {dept: 2}", "'task.dept' is not a setting; did you mean 'depth'?"),
        ("curriculum: {spred: one}", "'curriculum.spred' is not a setting; did you mean 'spread'?"),
        ("curriculum: {preset: anneal, spred: one}", "'curriculum.spred' is not a setting; did you mean 'spread'?"),
        ("model: {lora: {rnk: 2}}", "'model.lora.rnk' is not a setting; did you mean 'rank'?"),
        ("training: {epochs: 0}", "training.epochs: Input should be greater than or equal to 1 (given: 0)"),
        ("training: {learning_rate: -1}", "training.learning_rate: Input should be greater than 0"),
        ("training: {learning_rate: .inf}", "training.learning_rate: Input should be a finite number"),
        ("training: {learning_rate: .nan}", "training.learning_rate: Input should be a finite number"),
        ("training: {betas: [0.9, 1.5]}", "training.betas.1: Input should be less than 1"),
        ("training: {schedule: cosin}", "training.schedule: Input should be 'cosine'"),
        ("training: {warmup: 1}", "training.warmup: Input should be less than 1"),
        ("training: 5", "training: Input should be a valid dictionary"),
        ("task: {chars: 1}", "task.chars: Input should be greater than or equal to 2"),
        ("task: {text: relesed}", "task.text: there is no text format 'relesed'"),
        ("model: {hidden_size: 30, heads: 4}", "hidden_size 30 does not split into 4 heads"),
        ("model: {hidden_size: 12, heads: 4}", "hidden_size 12 does not split into 4 heads of an even size"),
        ("model: {key_value_heads: 3}", "4 heads cannot share 3 key_value_heads evenly"),
        ("curriculum: aneal", "there is no curriculum 'aneal'"),
        ("curriculum: aneal", "did you mean 'anneal'?"),
        ("curriculum: fixed:2", "curriculum.drop: schedule '2': rates and progress are between 0 and 1"),
        ("data: f\ncurriculum: fixed:2", "curriculum.drop: schedule '2'"),
        ("curriculum: {spread: ones}", "curriculum.spread: spread is all, one, coin, or a schedule"),
        ("curriculum: {spread: [1, 2]}", "curriculum.spread: spread is all, one, coin, or a schedule"),
        ("curriculum: {drop: '1@0.5,0@0.1'}", "progress must not go back"),
        ("training: {schedule: warmup_stable_decay, warmup: 0.5, decay: 0.6}", "more than all of the steps"),
        ("task: {text: composite}\nthink: <T>", "a student has <THINK> and no other thinking token"),
        ("task: {text: compact}\nreading: {}", "a reading course needs the task in a student's text"),
        ("data: facts.jsonl\ntask: {depth: 2}", "both 'data' and 'task' are given"),
        ("- a\n- b", "a config is a list of `key: value` lines"),
        ("", "a config is a list of `key: value` lines"),
        ("seed: 1\n  epochs: [1\n", ":2: not YAML"),
        ("seed: 2020-13-45", "not YAML"),
        ("seed: !!python/object/apply:os.getcwd []", "not YAML"),
        (b"seed: \xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting, complaint",
    [
        ("training.epochs", "is not a setting: write it as key=value"),
        ("training.epochs=[1", "--set training.epochs=[1:1: not YAML"),
        ("seed.x=1", "'seed' is 1, not a group of settings"),
        ("training.epoch=3", "did you mean 'epochs'?"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, setting: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "seed: 1\n", setting)
    assert complaint in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"epohs.*; .*sed"):
        read(tmp_path, "training: {epohs: 1}\nsed: 2\n")


def test_a_config_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no config 'absent'"):
        read_yaml("absent")
    with pytest.raises(InputError, match="there is no config"):
        read_yaml(tmp_path)


def test_shipped_configs_are_valid() -> None:
    for name in shipped():
        assert configured(name, [], {}), name


def test_a_seed_is_that_of_codebook_and_strings_too_unless_they_have_their_own() -> None:
    task = configured(None, [], {"seed": 3}).task
    assert task is not None and (task.codebook, task.seed) == (3, 3)
    task = configured(None, ["task.codebook=1", "task.seed=0"], {"seed": 3}).task
    assert task is not None and (task.codebook, task.seed) == (1, 0)
    assert configured(None, ["task.codebook=fresh"], {"seed": 3}).task.codebook == "fresh"  # type: ignore[union-attr]


def test_a_student_does_not_learn_from_records(tmp_path: Path) -> None:
    shipped = Path(openbook.__file__).parent / "checkpoints"
    for name in ("student-3-8", "writer-2-8"):
        with pytest.raises(InputError, match=r"is a student of MLT.* cannot learn from facts\.jsonl"):
            resolve({"model": {"path": str(shipped / name)}, "data": "facts.jsonl"})


def test_a_student_is_not_taught_a_task_that_it_has_no_words_for() -> None:
    reader = Path(openbook.__file__).parent / "checkpoints" / "student-3-8"
    task = configured(None, [], {"model.path": str(reader)}).task
    assert task is not None and (task.depth, task.chars, task.text) == (3, 8, "composite")
    with pytest.raises(InputError, match=r"student of MLT\(3, 8\).*task.depth is 2"):
        configured(None, [], {"model.path": str(reader), "task.depth": 2})


def test_what_was_made_from_nothing_has_nothing_to_keep() -> None:
    with pytest.raises(InputError, match="made from nothing"):
        configured("student-deep", [], {}).check_start()


def test_every_setting_is_listed_with_its_default_and_what_it_means() -> None:
    kinds: list[dict[str, Any]] = [{}, {"data": "facts.jsonl"}, {"model.path": "student-3-8"}]
    configs = [*(configured(None, [], given) for given in kinds)]
    configs.append(configured(None, [], {}, STAGE_ONE["reading"]))
    groups = {"model", "model.lora", "task", "curriculum", "training", "reading", "exam"}
    seen = set()
    for config in configs:
        result = {one["key"]: one for one in listed(RunConfig, config)}
        assert {key for key, one in result.items() if not one["meaning"]} == set()
        values = config.model_dump(mode="json")
        for key, one in result.items():
            group, _, name = key.rpartition(".")
            if group != "model.lora":  # which this run has not
                inner = values[group] if group else values
                assert inner[name] == (list(one["value"]) if isinstance(one["value"], tuple) else one["value"]), key
        assert any(key.startswith("task.") for key in result) == (config.task is not None)
        seen |= set(result)
    assert seen == set(places(RunConfig)) - groups
    by_key = {one["key"]: one for one in listed(RunConfig, configs[2])}
    assert by_key["training.optimizer"]["value"] == "muon"  # a student's
    assert by_key["training.optimizer"]["words"] == ["adamw", "muon"]
