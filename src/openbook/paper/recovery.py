"""Recovery tables: can the rules be got out of the model by asking for their text, or through what it can do?"""

from __future__ import annotations

from typing import Any

from openbook.audit.statistics import harmonic_share
from openbook.figures.charts import Chart, Table
from openbook.paper.curricula import llama, student
from openbook.paper.experiment import Experiment, Rows, Scale, TaughtModel, Unit
from openbook.paper.models import Models
from openbook.paper.published import published
from openbook.report.claims import Claim, judge, unmeasured

WRITER = "writer-2-8"  # a reader whose rules are words, so that it can be asked for them
# (curriculum, samples) of the runs that are audited
ASKED = {
    "laptop": (("anneal", 3000),),
    "overnight": tuple((name, n) for name in ("anneal", "fixed:0.2", "no-context") for n in (3000, 6000)),
}
ARMS = {"trained": "trained", "before": "before learning", "without": "learned without the book",
        "decoy": "learned with a wrong book", "positive": "positive control: loss on the book"}  # fmt: skip
RATES = ("greedy_before", "greedy_last", "sampled_before", "sampled_last")  # levels before the last, and the last
PERMUTATIONS = 20  # orders of the book, as in the paper
ATTACKS = ("completion", "exposure", "membership")
MEASURE = ("name", "variant", "metric", "arm", "rate", "low", "high", "chance", "elimination", "caught", "by_group")


def units(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        return []
    if scale == "paper":
        sizes = ((8, "anneal", 50_000), (8, "anneal", 100_000), (8, "anneal", 250_000), (8, "fixed:0.2", 50_000),
                 (8, "fixed:0.2", 100_000), (8, "fixed:0.2", 250_000), (10, "anneal", 100_000), (10, "anneal", 250_000),
                 (10, "fixed:0.2", 250_000), (10, "fixed:0.2", 500_000))  # fmt: skip
        return [_text(name, n, chars, 5, llama(name, n, chars), 7200.0) for chars, name, n in sizes]
    arms = {"without": "no-context", "decoy": "wrong-context"}
    models = [student(scale, "anneal", 4000), *(student(scale, name, 4000) for name in arms.values())]
    behaviour = {
        "subject": "behaviour",
        "curve": "anneal",
        "samples": 4000,
        "learned": models,
        "readers": ["student-3-8"],
    }
    asked = [_text(name, n, 8, 2, writer(name, n), 15 + 0.025 * n) for name, n in ASKED[scale]]
    return [*asked, Unit({**behaviour, "arms": ["trained", *arms]}, seconds=30.0)]


def _text(name: str, samples: int, chars: int, depth: int, spec: TaughtModel, seconds: float) -> Unit:
    about = {"curve": name, "samples": samples, "chars": chars, "depth": depth}
    return Unit({"subject": "text", **about, "learned": [spec]}, seconds)


def writer(curriculum: str, samples: int) -> TaughtModel:
    """A student of two levels that reads and writes rules as words."""
    gentle = {"training.matrix_learning_rate": 0.01}  # what two levels were tried with; three learn faster at 0.02
    settings = {"curriculum": curriculum, "samples": samples, "seed": 0, "task.codebook": 0, "exam.every": 10**6}
    return TaughtModel(WRITER, settings | gentle)


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    about = {key: config[key] for key in ("curve", "samples")}
    found = _asked(config, models) if config["subject"] == "text" else _behaved(config, models)
    return [{**about, **row} for row in found]


def _asked(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """The paper's table: rules asked for as text, on the trained model and four controls (which are trained here).

    Rows of completion, and as "likelihood" those of exposure and membership.
    """
    from openbook.audit.run import Settings, audit
    from openbook.audit.tables import completion_rows

    run = models.place(config["learned"][0])
    folder = run.with_name(f"{run.name}-arms")
    report = audit(run, Settings(ATTACKS, permutations=PERMUTATIONS), folder, train_arms=True)
    by_positive = list(dict.fromkeys(found["attack"] for found in report["positive_findings"]))
    shared = {
        "depth": config["depth"],
        "chars": config["chars"],
        "verdict": report["verdict"],
        "closed": report["closed_book"],
        "positive_caught_by": by_positive,
        "trained_caught_by": [f"{found['attack']}: {found['variant']}" for found in report["findings"]],
    }
    closed = {arm["name"]: arm["closed_book"] for arm in report["arms"]}
    likelihood = [
        {"subject": "likelihood", **{key: row[key] for key in MEASURE}}
        for row in report["attacks"]
        if row["name"] != "completion"
    ]
    asked = [{"subject": "text", **row} for row in completion_rows(report)]
    return [{**row, **shared, "arm_closed": closed[row["arm"]]} for row in (*asked, *likelihood)]


def _behaved(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the skill itself gives away: the student and its controls, attacked through questions alone."""
    from openbook.audit.arms import config_of, load_subject
    from openbook.audit.run import Settings, attacked, attacks_for, report, secrets_of
    from openbook.training.sources import sources_of

    places = dict(zip(config["arms"], (models.place(spec) for spec in config["learned"]), strict=True))
    settings = config_of(places["trained"])
    source, _ = sources_of(settings)
    secrets = secrets_of(settings, source, places["trained"])
    subjects = {arm: [load_subject(place, settings)] for arm, place in places.items()}
    subjects["before"] = [load_subject(models.reader(config["readers"][0]), settings)]
    wanted = Settings(("inversion", "relearning"), steps=40)
    attacks = attacks_for(wanted, settings, source, subjects["trained"][0], {})
    judged = report(attacked(attacks, subjects, secrets), secrets, wanted, student=True)
    keep = ("name", "variant", "arm", "rate", "low", "high", "chance", "elimination", "by_group")
    return [{"subject": "behaviour", **{key: row[key] for key in keep}} for row in judged["attacks"]]


def draw(rows: Rows) -> list[Chart | Table]:
    tables: list[Chart | Table] = []
    asked = [row for row in rows if row["subject"] == "text"]
    if asked:
        tables += [_asked_table(asked), _arms_table(asked, [row for row in rows if row["subject"] == "likelihood"])]
        tables.append(_published_table())
    behaved = [row for row in rows if row["subject"] == "behaviour"]
    if behaved:
        cells = [
            [f"{r['name']}: {r['variant']}", ARMS[r["arm"]], _percent(r["rate"]),
             f"{_percent(r['low'])} to {_percent(r['high'])}", _percent(r["elimination"])]
            for r in behaved
        ]  # fmt: skip
        tables.append(
            Table("recovery-behaviour", "What the skill itself gives away: the student of three levels",
                  ["attack", "model", "rules found", "95 % interval", "a guess"], cells,
                  "Not asked in the paper: the model is only asked to translate, with the book closed, and the rules "
                  "are solved for (up to renaming the characters in between). A model that can translate must give "
                  "this away; it says nothing about memory of the text.")
        )  # fmt: skip
    return tables


def _name(row: dict[str, Any]) -> str:
    return f"MLT({row['depth']}, {row['chars']}), {row['curve']}, {row['samples']:,}"


def _asked_table(rows: Rows) -> Table:
    """The paper's table: curricula, sample sizes and filters, for the trained models alone."""
    trained = [row for row in rows if row["arm"] == "trained"]
    alone = {(_name(r), r["filter"]): r["greedy"] for r in trained if r["context"] == "alone"}
    cells = [
        [_name(r), f"{r['closed']:.3f}", r["filter"], *(_percent(r.get(key)) for key in RATES),
         _percent(alone.get((_name(r), r["filter"]))), _percent(r["chance"]), _percent(r["elimination"])]
        for r in trained if r["context"] == "in the book"
    ]  # fmt: skip
    rates = ["greedy, hidden levels", "greedy, last", "sampled, hidden levels", "sampled, last", "greedy, alone"]
    header = ["run", "closed book", "filter", *rates, "guess", "elimination"]
    note = (
        f"Each rule asked for after the true earlier rules, in {PERMUTATIONS} orders; alone: after none. Guess: 1/n². "
        "Elimination: guessing among the images not yet shown, which the book allows."
    )
    return Table("recovery-asked", "Rules completed as text, asked for as in the paper", header, cells, note)


def _arms_table(asked: Rows, likelihood: Rows) -> Table:
    """Every model of every audit by one measure of each attack; a star marks what was caught."""
    cells = []
    for r in (row for row in asked if row["context"] == "in the book" and row["filter"] == "no filter"):
        mine = [row for row in likelihood if _name(row) == _name(r) and row["arm"] == r["arm"]]
        found = {(row["variant"], row["metric"]): row for row in mine}
        alone = next(
            (row for row in asked if (_name(row), row["arm"]) == (_name(r), r["arm"]) and row["context"] == "alone"), {}
        )
        likely = [found.get(key) for key in (("rank 1, alone", "rate"), ("rank 1, in the book", "rate"))]
        ranked = [_percent(row and row["rate"]) + ("*" if row and row["caught"] else "") for row in likely]
        auc = found.get(("loss", "AUC"))
        told = f"{auc['rate']:.3f}{'*' if auc['caught'] else ''}" if auc else ""
        cells.append([_name(r), ARMS[r["arm"]], f"{r.get('arm_closed', r['closed']):.3f}", _percent(r["greedy"]),
                      _percent(alone.get("greedy")), *ranked, told, r["verdict"]])  # fmt: skip
    header = ["run", "model", "closed book", "completed, in the book", "completed, alone", "ranked first, alone",
              "ranked first, in the book", "AUC of truth against rivals", "verdict"]  # fmt: skip
    return Table("recovery-arms", "The trained model beside its controls, no filter", header, cells,
                 "A star: above guessing, elimination and every control by more than 1 %, at an error level of 5 % "
                 "over all measures.")  # fmt: skip


def _published_table() -> Table:
    cells = [
        [f"MLT(5, {r['chars']}), {r['curriculum']}, {r['samples']:,}", r["filter"],
         *(_percent(r[key] / 100) for key in RATES),
         *map(_percent, (1 / r["chars"] ** 2, harmonic_share(r["chars"] ** 2)))]
        for r in published("recovery")
    ]  # fmt: skip
    header = ["run", "filter", "greedy, levels 1 to 4", "greedy, level 5", "sampled, levels 1 to 4", "sampled, level 5",
              "guess", "elimination"]  # fmt: skip
    return Table(
        "recovery-published", "Published, not ours: Llama-3.2-3B (tables of the paper's appendix)", header, cells
    )


def _percent(value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, int | float) else ""


def claims(rows: Rows) -> list[Claim]:
    claim = "The rules cannot be recovered by asking the model for their text."
    threshold = (
        "the audit's verdict over completion, exposure and membership: no attack beats guessing, elimination and "
        "every control by more than 1 %, while the positive control is caught (else unclear)"
    )
    asked = [row for row in rows if row["subject"] == "text"]
    if not asked:
        return [unmeasured(claim, threshold, "no model that writes text was audited")]
    verdicts = {_name(row): row["verdict"] for row in asked}
    bare = [r for r in asked if (r["context"], r["filter"]) == ("in the book", "no filter")]
    highest = {
        arm: max((r["greedy"] for r in bare if r["arm"] == arm), default=None) for arm in ("trained", "positive")
    }
    numbers = {f"greedy at most, {ARMS[arm]}": _percent(rate) for arm, rate in highest.items()}
    numbers |= {"a guess": _percent(asked[0]["chance"]), "elimination": _percent(asked[0]["elimination"])}
    numbers |= {f"{name}, closed book": f"{row['closed']:.3f}" for name, row in {_name(r): r for r in bare}.items()}
    numbers |= {f"{name}, audit": verdict for name, verdict in verdicts.items()}
    every = set(verdicts.values())
    leaked = "leaked" in every
    return [judge(claim, not leaked, numbers, threshold, enough=leaked or "void" not in every)]


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
