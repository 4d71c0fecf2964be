"""Recovery tables: can the rules be got out of the model by asking for their text, or through what it can do?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openbook.audit.statistics import harmonic_share
from openbook.figures.charts import Chart, Table
from openbook.paper.curricula import taught
from openbook.paper.drawing import where
from openbook.paper.experiment import Experiment, Json, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

WRITER = "writer-2-8"  # a reader whose rules are words, so that it can be asked for them
ARMS = {"trained": "trained", "before": "before learning", "without": "learned without the book",
        "decoy": "learned with a wrong book", "positive": "positive control: loss on the book"}  # fmt: skip
RATES = ("greedy_before", "greedy_last", "sampled_before", "sampled_last")  # levels before the last, and the last
PERMUTATIONS = 20  # orders of the book, as in the paper
ATTACKS = ("completion", "exposure", "membership")
BEHAVIOUR = ("name", "variant", "arm", "rate", "low", "high", "chance", "elimination", "by_group")
LIKELIHOOD = (*BEHAVIOUR, "metric", "caught")


def units(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        return []
    if scale == "paper":
        runs = dict.fromkeys((r["curriculum"], r["samples"], r["chars"]) for r in published("recovery"))
        return [_asked_unit(name, n, chars, 5, taught(scale, name, n, chars=chars), 7200.0) for name, n, chars in runs]
    names = ("anneal",) if scale == "laptop" else ("anneal", "fixed:0.2", "no-context")
    sizes = (3000,) if scale == "laptop" else (3000, 6000)
    asked = [_asked_unit(name, n, 8, 2, writer(name, n), 15 + 0.025 * n) for name in names for n in sizes]
    arms = {"trained": "anneal", "without": "no-context", "decoy": "wrong-context"}
    learned = [taught(scale, name, 4000) for name in arms.values()]
    behaviour = {"subject": "behaviour", "curve": "anneal", "samples": 4000, "learned": learned}
    return [*asked, Unit({**behaviour, "readers": ["student-3-8"], "arms": list(arms)}, seconds=30.0)]


def _asked_unit(name: str, samples: int, chars: int, depth: int, spec: TaughtModel, seconds: float) -> Unit:
    config = {"subject": "text", "curve": name, "samples": samples, "chars": chars, "depth": depth, "learned": [spec]}
    return Unit(config, seconds)


def writer(curriculum: str, samples: int) -> TaughtModel:
    """A student of two levels that reads and writes rules as words."""
    gentle = {"training.matrix_learning_rate": 0.01}  # what two levels were tried with; three learn faster at 0.02
    settings = {"curriculum": curriculum, "samples": samples, "seed": 0, "task.codebook": 0, "exam.every": 10**6}
    return TaughtModel(WRITER, settings | gentle)


def run(config: Json, models: Models) -> list[Json]:
    return _asked_rows(config, models) if config["subject"] == "text" else _behaviour_rows(config, models)


def _asked_rows(config: Json, models: Models) -> list[Json]:
    """The paper's table: rules asked for as text, on the trained model and four controls (which are trained here).

    Rows of completion, and as "likelihood" those of exposure and membership.
    """
    from openbook.audit.attack import AuditConfig
    from openbook.audit.run import audit
    from openbook.audit.summary import completion_rows

    place = models.place(config["learned"][0])
    folder = place.with_name(f"{place.name}-arms")
    report = audit(place, AuditConfig(ATTACKS, permutations=PERMUTATIONS), folder, train_arms=True)
    shared = {key: config[key] for key in ("curve", "samples", "depth", "chars")}
    shared |= {"verdict": report["verdict"], "closed": report["closed_book"]}
    shared["positive_caught_by"] = list(dict.fromkeys(finding["attack"] for finding in report["positive_findings"]))
    shared["trained_caught_by"] = [f"{finding['attack']}: {finding['variant']}" for finding in report["findings"]]
    closed = {arm["name"]: arm["closed_book"] for arm in report["arms"]}
    rows = [{"subject": "text", **row} for row in completion_rows(report)]
    others = [row for row in report["attacks"] if row["name"] != "completion"]
    rows += [{"subject": "likelihood", **{key: row[key] for key in LIKELIHOOD}} for row in others]
    return [{**row, **shared, "arm_closed": closed[row["arm"]]} for row in rows]


def _behaviour_rows(config: Json, models: Models) -> list[Json]:
    """What the skill itself gives away: the student and its controls, attacked through questions alone."""
    from openbook.audit.arms import config_of
    from openbook.audit.attack import AuditConfig
    from openbook.audit.run import attack_arms, secrets_of, unchanged_source

    places = dict(zip(config["arms"], map(models.place, config["learned"]), strict=True))
    trained, places["before"] = places["trained"], models.reader(config["readers"][0])
    source = unchanged_source(trained, config_of(trained))
    secrets = secrets_of(config_of(trained), source, trained)
    wanted = AuditConfig(("inversion", "relearning"), steps=40)
    report = attack_arms({arm: [place] for arm, place in places.items()}, wanted, source, secrets)
    shared = {"curve": config["curve"], "samples": config["samples"], "subject": "behaviour"}
    return [{**shared, **{key: row[key] for key in BEHAVIOUR}} for row in report["attacks"]]


def draw(rows: Rows) -> list[Chart | Table]:
    asked, likelihood, behaviour = (where(rows, subject=subject) for subject in ("text", "likelihood", "behaviour"))
    tables = [_asked_table(asked), _arms_table(asked, likelihood), _published_table()] if asked else []
    return [*tables, *([_behaviour_table(behaviour)] if behaviour else [])]


def _table(name: str, title: str, header: str, rows: Iterable[Sequence[str | float | None]], note: str = "") -> Table:
    """A table; numbers are shown in percent."""
    cells = [[value if isinstance(value, str) else _percent(value) for value in row] for row in rows]
    return Table(f"recovery-{name}", title, header.split(" | "), cells, note)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def _name(row: Json) -> str:
    return f"MLT({row['depth']}, {row['chars']}), {row['curve']}, {row['samples']:,}"


def _asked_table(rows: Rows) -> Table:
    """The paper's table: curricula, sample sizes and filters, for the trained models alone."""
    trained = where(rows, arm="trained")
    alone = {(_name(r), r["filter"]): r["greedy"] for r in where(trained, context="alone")}
    cells = [
        (_name(r), f"{r['closed']:.3f}", r["filter"], *(r.get(key) for key in RATES),
         alone.get((_name(r), r["filter"])), r["chance"], r["elimination"])
        for r in where(trained, context="in the book")
    ]  # fmt: skip
    header = "run | closed book | filter | greedy, hidden levels | greedy, last | sampled, hidden levels"
    note = (
        f"Each rule asked for after the true earlier rules, in {PERMUTATIONS} orders; alone: after none. Guess: 1/n². "
        "Elimination: guessing among the images not yet shown, which the book allows."
    )
    title = "Rules completed as text, asked for as in the paper"
    return _table("asked", title, f"{header} | sampled, last | greedy, alone | guess | elimination", cells, note)


def _arms_table(asked: Rows, likelihood: Rows) -> Table:
    """Every model of every audit by one measure of each attack; a star marks what was caught."""
    alone = {(_name(r), r["arm"]): r["greedy"] for r in where(asked, filter="no filter", context="alone")}
    measured = {}
    for r in likelihood:
        value = f"{r['rate']:.3f}" if r["metric"] == "AUC" else _percent(r["rate"])
        measured[_name(r), r["arm"], r["variant"], r["metric"]] = value + ("*" if r["caught"] else "")
    shown = (("rank 1, alone", "rate"), ("rank 1, in the book", "rate"), ("loss", "AUC"))
    cells = [
        (_name(r), ARMS[r["arm"]], f"{r.get('arm_closed', r['closed']):.3f}", r["greedy"],
         alone.get((_name(r), r["arm"])), *(measured.get((_name(r), r["arm"], *key)) for key in shown), r["verdict"])
        for r in where(asked, filter="no filter", context="in the book")
    ]  # fmt: skip
    header = "run | model | closed book | completed, in the book | completed, alone | ranked first, alone"
    note = "A star: above guessing, elimination and every control by more than 1 %, at an error level of 5 % over all "
    title = "The trained model beside its controls, no filter"
    header += " | ranked first, in the book | AUC of truth against rivals | verdict"
    return _table("arms", title, header, cells, f"{note}measures.")


def _published_table() -> Table:
    cells = [
        (f"MLT(5, {r['chars']}), {r['curriculum']}, {r['samples']:,}", r["filter"], *(r[key] / 100 for key in RATES),
         1 / r["chars"] ** 2, harmonic_share(r["chars"] ** 2))
        for r in published("recovery")
    ]  # fmt: skip
    header = "run | filter | greedy, levels 1 to 4 | greedy, level 5 | sampled, levels 1 to 4 | sampled, level 5"
    title = "Published, not ours: Llama-3.2-3B (tables of the paper's appendix)"
    return _table("published", title, f"{header} | guess | elimination", cells)


def _behaviour_table(rows: Rows) -> Table:
    cells = [
        (f"{r['name']}: {r['variant']}", ARMS[r["arm"]], r["rate"], f"{_percent(r['low'])} to {_percent(r['high'])}",
         r["elimination"])
        for r in rows
    ]  # fmt: skip
    note = (
        "Not asked in the paper: the model is only asked to translate, with the book closed, and the rules are solved "
        "for (up to renaming the characters in between). A model that can translate must give this away; it says "
        "nothing about memory of the text."
    )
    title = "What the skill itself gives away: the student of three levels"
    return _table("behaviour", title, "attack | model | rules found | 95 % interval | a guess", cells, note)


def claims(rows: Rows) -> list[Claim]:
    claim = "The rules cannot be recovered by asking the model for their text."
    threshold = (
        "the audit's verdict over completion, exposure and membership: no attack beats guessing, elimination and "
        "every control by more than 1 %, while the positive control is caught (else unclear)"
    )
    if not (asked := where(rows, subject="text")):
        return [unmeasured(claim, threshold, "no model that writes text was audited")]
    bare = where(asked, context="in the book", filter="no filter")
    greedy = {arm: [r["greedy"] for r in where(bare, arm=arm)] for arm in ("trained", "positive")}
    numbers = {f"greedy at most, {ARMS[arm]}": _percent(max(rates, default=None)) for arm, rates in greedy.items()}
    numbers |= {"a guess": _percent(asked[0]["chance"]), "elimination": _percent(asked[0]["elimination"])}
    numbers |= {f"{_name(r)}, closed book": f"{r['closed']:.3f}" for r in bare}
    verdicts = {f"{_name(r)}, audit": r["verdict"] for r in asked}
    leaked, void = ("leaked" in verdicts.values(), "void" in verdicts.values())
    return [judge(claim, not leaked, numbers | verdicts, threshold, enough=leaked or not void)]


EXPERIMENT = Experiment(
    name="recovery",
    title="Can the book be read back?",
    paper="Table 1, section 4, appendix C.3",
    story="The book was in the context of every training example, and no loss was computed on it. Can its text be had "
    "from the model afterwards? Each rule is asked for as “a b ->”, with the true earlier rules before it, greedily "
    "and by sampling, with and without filters that only let plausible tokens pass. Controls: the model before, models "
    "that never saw the book, and one that was made to remember it, which the audit must catch.",
    units=units,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper asks Llama-3.2-3B about five levels; here a student of two levels whose rules are words of a "
    "text is asked. The student of three levels cannot write rules, and is attacked through what it can do.",
    version=2,
)
