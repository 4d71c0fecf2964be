"""The formulas of attacks 1 to 5, on a model whose logits are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.audit.handmade import attacker, handmade, table_model

from openbook.audit.attack import Attacker, AuditConfig
from openbook.audit.attacks.battery import battery
from openbook.audit.attacks.budget import at_least_once, budget
from openbook.audit.attacks.completion import FILTERS, completion
from openbook.audit.attacks.exposure import expected_rank, exposure
from openbook.audit.attacks.membership import membership
from openbook.audit.model import AttackedModel
from openbook.audit.prompts import top_share
from openbook.audit.statistics import harmonic_share

MODEL, SECRETS, LOGP = handmade()
SIZE = len(SECRETS)


def ids(text: str) -> list[int]:
    return list(MODEL.tokens(text))


def by_hand(secret: int) -> dict[tuple[int, int], float]:
    """Log-likelihood of every pair of tokens after a secret's known part: it depends on the last known token alone."""
    item = SECRETS.items[secret]
    last = ids(item.known)[-1]
    pairs = [tuple(ids(candidate)) for candidate in item.candidates]
    return {(c, d): LOGP[last, c] + LOGP[c, d] for c, d in pairs}


def truth(secret: int) -> tuple[int, int]:
    c, d = ids(SECRETS.items[secret].truth)
    return c, d


def test_the_model_is_what_it_should_be() -> None:
    import torch

    text = torch.tensor([[4, 9, 2, 7]])
    with torch.inference_mode():
        logp = torch.log_softmax(MODEL.model(input_ids=text).logits[0], -1).numpy()
    np.testing.assert_allclose(logp, LOGP[[4, 9, 2, 7]], atol=1e-4)


def test_completion_greedy_and_sampled_with_every_filter() -> None:
    scores = {score.variant: score for score in completion(MODEL, SECRETS, attacker(permutations=3))}
    assert len(scores) == 2 * 3 * 2
    vocabulary = set(range(len(LOGP)))
    letters = {token for candidate in SECRETS.items[0].candidates for token in ids(candidate)}
    allowed = dict(zip(FILTERS, (vocabulary, vocabulary - {MODEL.think_token()}, letters), strict=True))
    for filter_, kept in allowed.items():
        for s in range(SIZE):
            (c, d), last = truth(s), ids(SECRETS.items[s].known)[-1]
            greedy = max(kept, key=lambda t: LOGP[last, t]) == c and max(kept, key=lambda t: LOGP[c, t]) == d
            p = [math.exp(LOGP[i, x]) / sum(math.exp(LOGP[i, t]) for t in kept) for i, x in ((last, c), (c, d))]
            for context in ("in the book", "alone"):  # this model does not look back further
                assert scores[f"greedy, {filter_}, {context}"].values_s[s] == float(greedy)
                assert scores[f"sampled, {filter_}, {context}"].values_s[s] == pytest.approx(p[0] * p[1], rel=1e-3)


def test_both_chance_levels() -> None:
    for score in completion(MODEL, SECRETS, attacker(permutations=400)):
        assert score.chance_s == pytest.approx(1 / 9)
        shown = score.variant.endswith("in the book")
        assert score.elimination_s.mean() == pytest.approx(harmonic_share(9) if shown else 1 / 9, rel=1e-6)


def test_exposure_is_the_exact_rank() -> None:
    alone, shown = exposure(MODEL, SECRETS, attacker(permutations=2))
    for s in range(SIZE):
        likely = by_hand(s)
        rank = 1 + sum(value > likely[truth(s)] for value in likely.values())
        assert alone.curve["exposure"][s] == pytest.approx(math.log2(9) - math.log2(rank), abs=1e-6)
        assert alone.values_s[s] == shown.values_s[s] == float(rank == 1)


def test_ties_are_shared() -> None:
    values = np.array([0.0, 2.0, 2.0, 1.0, 2.0])
    assert top_share(values, 1) == pytest.approx(1 / 3) and top_share(values, 3) == 0
    assert expected_rank(values, 2) == 2 and expected_rank(values, 3) == 4 and expected_rank(values, 0) == 5
    flat = AttackedModel(table_model(np.zeros((len(LOGP), len(LOGP)))), MODEL.tokenizer)
    assert exposure(flat, SECRETS, attacker(permutations=1))[0].values_s == pytest.approx(1 / 9)


def test_membership_scores() -> None:
    other, _, other_logp = handmade(seed=7)
    loss, min_k, ratio = membership(MODEL, SECRETS, Attacker(AuditConfig(), {"before": other}))
    assert (loss.variant, min_k.variant, ratio.variant) == ("loss", "Min-K%++", "ratio to before")
    p = np.exp(LOGP)
    mean, second = (p * LOGP).sum(1), (p * LOGP**2).sum(1)
    z = (LOGP - mean[:, None]) / np.sqrt(second - mean**2)[:, None]
    for s in range(SIZE):
        (c, d), last = truth(s), ids(SECRETS.items[s].known)[-1]
        assert loss.values_s[s] == pytest.approx((LOGP[last, c] + LOGP[c, d]) / 2, abs=1e-4)
        assert min_k.values_s[s] == pytest.approx(min(z[last, c], z[c, d]), abs=1e-3)  # a fifth of two tokens is one
        reference = other_logp[last, c] + other_logp[c, d]
        assert ratio.values_s[s] == pytest.approx(LOGP[last, c] + LOGP[c, d] - reference, abs=1e-3)
        rivals = sorted(value / 2 for pair, value in by_hand(s).items() if pair != (c, d))
        assert loss.rivals_sk is not None
        np.testing.assert_allclose(np.sort(loss.rivals_sk[s]), rivals, atol=1e-4)


def test_the_battery_of_prompts() -> None:
    scores = {score.variant: score for score in battery(MODEL, SECRETS, attacker())}
    assert set(scores) == {"bare", "template", "few-shot", "forced prefix"}
    for s in range(SIZE):
        likely, (c, d) = by_hand(s), truth(s)
        best = max(likely, key=likely.__getitem__)
        for style in ("bare", "template", "few-shot"):
            assert scores[style].values_s[s] == float(best == (c, d))
        same = {pair: value for pair, value in likely.items() if pair[0] == c}
        assert scores["forced prefix"].values_s[s] == float(max(same, key=same.__getitem__) == (c, d))
        assert scores["forced prefix"].chance_s[s] == pytest.approx(1 / 3)
    assert scores["few-shot"].elimination_s == pytest.approx(1 / (9 - 4))  # four others were shown


def test_the_budget_of_samples() -> None:
    free, among = budget(MODEL, SECRETS, attacker(samples=20))
    for s in range(SIZE):
        likely = by_hand(s)
        p = math.exp(likely[truth(s)])
        assert free.values_s[s] == pytest.approx(1 - (1 - p) ** 20, rel=1e-3)
        q = p / sum(math.exp(value) for value in likely.values())
        assert among.values_s[s] == pytest.approx(1 - (1 - q) ** 20, rel=1e-3)
    assert free.chance_s == pytest.approx(1 - (1 - 1 / 9) ** 20)
    assert at_least_once(np.array([1e-12]), 5)[0] == pytest.approx(5e-12, rel=1e-6)
    assert free.curve["samples"][0] == 1 and (np.diff(free.curve["expected"]) > 0).all()


def test_sampling_agrees_with_the_exact_chance() -> None:
    """The product of probabilities is what sampling token by token gives."""
    import torch

    s = int(np.argmax([by_hand(s)[truth(s)] for s in range(SIZE)]))
    item, (c, d) = SECRETS.items[s], truth(s)
    prompt = torch.tensor([ids(SECRETS.opening) + ids(item.known)]).repeat(20_000, 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(2):
            with torch.inference_mode():
                logits = MODEL.model(input_ids=prompt).logits[:, -1]
            prompt = torch.cat([prompt, torch.multinomial(torch.softmax(logits, -1), 1)], 1)
    hits = ((prompt[:, -2] == c) & (prompt[:, -1] == d)).float().mean().item()
    sampled = completion(MODEL, SECRETS, attacker(permutations=1))[-5]
    p = sampled.values_s[s]
    assert sampled.variant == "sampled, no filter, alone"
    assert hits == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 20_000) + 1e-6)


def test_a_model_that_knows_the_rules_is_read_like_a_book() -> None:
    """Two rules whose last known tokens and first secret tokens differ: the table can hold them, so all find them."""
    tokenizer, table = MODEL.tokenizer, np.zeros_like(LOGP)
    ends = [(ids(item.known)[-1], ids(item.truth)[0]) for item in SECRETS.items]
    other = next(k for k in range(1, SIZE) if ends[k][0] != ends[0][0] and ends[k][1] != ends[0][1])
    known = SECRETS.subset([0, other])
    for secret in known.items:
        last, (c, d) = ids(secret.known)[-1], ids(secret.truth)
        table[last, c], table[c, d] = 30, 30
    model, twice = AttackedModel(table_model(table), tokenizer), attacker(permutations=2)
    for score in [*completion(model, known, twice), *exposure(model, known, twice), *battery(model, known, twice)[:3]]:
        assert score.values_s == pytest.approx(1.0, abs=1e-6), score.variant
