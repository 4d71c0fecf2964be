"""Recovery tables: can the rules be got out of the model by asking for their text, or through what it can do?"""

from __future__ import annotations

from typing import Any

from openbook.experiments.curricula import llama, student
from openbook.experiments.experiment import Claim, Experiment, Rows, Scale, Unit, judge, unmeasured
from openbook.experiments.figures import Chart, Table
from openbook.experiments.models import Models
from openbook.published import published

TEXT_SIZE = {"laptop": (1, 5, 16_000), "overnight": (1, 8, 48_000)}
ARMS = {"trained": "trained", "before": "before learning", "without": "learned without the book",
        "decoy": "learned with a wrong book", "positive": "positive control: loss on the book"}  # fmt: skip
RATES = ("greedy_before", "greedy_last", "sampled_before", "sampled_last")  # levels before the last, and the last
PERMUTATIONS = 20  # orders of the book, as in the paper


def configs(scale: Scale) -> list[Unit]:
    if scale == "smoke":
        return []
    if scale == "paper":
        sizes = ((8, "anneal", 50_000), (8, "anneal", 100_000), (8, "anneal", 250_000), (8, "fixed:0.2", 50_000),
                 (8, "fixed:0.2", 100_000), (8, "fixed:0.2", 250_000), (10, "anneal", 100_000), (10, "anneal", 250_000),
                 (10, "fixed:0.2", 250_000), (10, "fixed:0.2", 500_000))  # fmt: skip
        return [_text(name, n, chars, 5, llama(name, n, chars), 7200.0) for chars, name, n in sizes]
    depth, chars, samples = TEXT_SIZE[scale]
    arms = {"without": "no-context", "decoy": "wrong-context"}
    models = [student(scale, "anneal", 4000), *(student(scale, name, 4000) for name in arms.values())]
    behaviour = {
        "subject": "behaviour",
        "curve": "anneal",
        "samples": 4000,
        "learned": models,
        "readers": ["student-3-8"],
    }
    return [
        _text("anneal", samples, chars, depth, written(depth, chars, samples), 0.004 * samples),
        Unit({**behaviour, "arms": ["trained", *arms]}, seconds=30.0),
    ]


def _text(name: str, samples: int, chars: int, depth: int, spec: dict[str, Any], seconds: float) -> Unit:
    about = {"curve": name, "samples": samples, "chars": chars, "depth": depth}
    return Unit({"subject": "text", **about, "learned": [spec]}, seconds)


def written(depth: int, chars: int, samples: int) -> dict[str, Any]:
    """A small Llama from nothing that reads and writes rules as words, so that it can be asked for them."""
    task = {"task.depth": depth, "task.chars": chars, "task.lengths": [8, 8], "task.text": "compact"}
    shape = {"model.hidden_size": 64, "model.layers": 2}
    training = {"training.micro_batch_size": 64, "training.learning_rate": 3e-3, "exam.every": 10**6}
    told = {"curriculum": "anneal", "samples": samples, "seed": 0, **task, **shape, **training}
    return {"reader": None, "settings": told}


def run(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    about = {key: config[key] for key in ("subject", "curve", "samples")}
    found = _asked(config, models) if config["subject"] == "text" else _behaved(config, models)
    return [{**about, **row} for row in found]


def _asked(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """The paper's table: rules asked for as text, on the trained model and four controls (which are trained here)."""
    from openbook.audit.run import Settings, audit
    from openbook.audit.tables import completion_rows

    run = models.place(config["learned"][0])
    settings = Settings(("completion", "exposure", "membership"), permutations=PERMUTATIONS)
    report = audit(run, settings, folder=run.with_name(f"{run.name}-arms"), train_arms=True)
    shared = {
        "depth": config["depth"],
        "chars": config["chars"],
        "verdict": report["verdict"],
        "closed": report["closed_book"],
    }
    return [{**row, **shared} for row in completion_rows(report)]


def _behaved(config: dict[str, Any], models: Models) -> list[dict[str, Any]]:
    """What the skill itself gives away: the student and its controls, attacked through questions alone."""
    from openbook.audit.arms import config_of, load_subject
    from openbook.audit.run import Settings, attacked, attacks_for, report, secrets_of
    from openbook.training.run import sources_of

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
    return [{key: row[key] for key in keep} for row in judged["attacks"]]


def draw(rows: Rows) -> list[Chart | Table]:
    tables: list[Chart | Table] = []
    asked = [row for row in rows if row["subject"] == "text" and row["context"] == "in the book"]
    if asked:
        tables.append(_asked_table(asked))
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


def _asked_table(rows: Rows) -> Table:
    cells = [
        [f"MLT({r['depth']}, {r['chars']}), {r['curve']}, {r['samples']:,}", ARMS[r["arm"]], r["filter"],
         *(_percent(r.get(key)) for key in RATES), _percent(r["chance"]), _percent(r["elimination"])]
        for r in sorted(rows, key=lambda r: (r["samples"], list(ARMS).index(r["arm"])))
    ]  # fmt: skip
    rates = ["greedy, hidden levels", "greedy, last", "sampled, hidden levels", "sampled, last"]
    header = ["run", "model", "filter", *rates, "guess", "elimination"]
    note = (
        f"Each rule asked for after the true earlier rules, in {PERMUTATIONS} orders. Guess: 1/n². Elimination: "
        "guessing among the images not yet shown, which the book allows. One level has no hidden ones."
    )
    return Table(
        "recovery-asked", "Rules completed as text: a small language model, asked as in the paper", header, cells, note
    )


def _published_table() -> Table:
    cells = [
        [f"MLT(5, {r['chars']}), {r['curriculum']}, {r['samples']:,}", r["filter"],
         *(_percent(r[key] / 100) for key in RATES), _percent(1 / r["chars"] ** 2), _percent(_eliminated(r["chars"]))]
        for r in published("recovery")
    ]  # fmt: skip
    header = ["run", "filter", "greedy, levels 1 to 4", "greedy, level 5", "sampled, levels 1 to 4", "sampled, level 5",
              "guess", "elimination"]  # fmt: skip
    return Table(
        "recovery-published", "Published, not ours: Llama-3.2-3B (tables of the paper's appendix)", header, cells
    )


def _eliminated(chars: int) -> float:
    """What guessing among the images not yet shown scores on average: H(n²) / n²."""
    return sum(1 / k for k in range(1, chars**2 + 1)) / chars**2


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
    verdicts = {row["verdict"] for row in asked}
    bare = [
        r
        for r in asked
        if r["context"] == "in the book" and r["filter"] == "no filter" and r["arm"] in ("trained", "positive")
    ]
    numbers = {f"greedy, {ARMS[r['arm']]}": _percent(r["greedy"]) for r in bare}
    numbers |= {"a guess": _percent(asked[0]["chance"]), "elimination": _percent(asked[0]["elimination"])}
    numbers |= {"closed book": _percent(asked[0]["closed"]), "audit": ", ".join(sorted(verdicts))}
    return [judge(claim, "leaked" not in verdicts, numbers, threshold, enough="void" not in verdicts)]


EXPERIMENT = Experiment(
    name="recovery",
    title="Can the book be read back?",
    paper="Table 1, section 4, appendix C.3",
    story="The book was in the context of every training example, and no loss was computed on it. Can its text be had "
    "from the model afterwards? Each rule is asked for as “a b ->”, with the true earlier rules before it, greedily "
    "and by sampling, with and without filters that only let plausible tokens pass. Controls: the model before, models "
    "that never saw the book, and one that was made to remember it, which the audit must catch.",
    configs=configs,
    run=run,
    draw=draw,
    claims=claims,
    differs="The paper asks Llama-3.2-3B; the student's head cannot write rules, so a small language model of one "
    "level is asked here, and the student is attacked through what it can do.",
)
