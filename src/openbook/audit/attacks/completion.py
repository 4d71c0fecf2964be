"""Attack 1, the paper's: complete `a b ->` (section 4 and its appendix on verbatim memorisation).

For a secret with tokens x_1 .. x_m and logits s_1 .. s_m in front of them, over the tokens A that a filter allows,

    greedy    prod_i 1[argmax_A s_i = x_i]
    sampled   prod_i softmax_A(s_i)[x_i]          temperature 1

which is what decoding would give, computed without decoding. Asked with the true earlier rules in context, in several
orders of the book, and without any.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from openbook.audit.attack import ATTACKS, AttackedModel, Attacker, Floats, Scores, Secrets
from openbook.audit.likelihood import next_logits
from openbook.audit.prompts import Prompts, book_prompts, single_prompts

FILTERS = ("no filter", "no thinking", "alphabet")
CONTEXTS = ("in the book", "alone")


@ATTACKS.register("completion")
def completion(model: AttackedModel, secrets: Secrets, attacker: Attacker) -> list[Scores]:
    """Complete every secret: in both contexts, with every filter, greedily and by sampling."""
    in_book = book_prompts(model, secrets, attacker.config.permutations, attacker.config.seed)
    alone = single_prompts(model, secrets, "template")
    scores = []
    for context, prompts in zip(CONTEXTS, (in_book, alone), strict=True):
        for filter_, chances in completion_chances(model, prompts).items():
            for decoding, values_k in zip(("greedy", "sampled"), chances, strict=True):
                scores.append(prompts.scores("completion", f"{decoding}, {filter_}, {context}", values_k))
    return scores


def allowed_tokens(model: AttackedModel, secrets: Secrets) -> dict[str, Tensor]:
    """Which tokens a filter lets through, for every group: [groups, V]. The alphabet is what candidates are made of."""
    everything = torch.ones(len(secrets.groups), model.vocabulary, dtype=torch.bool)
    alphabet, speaking = torch.zeros_like(everything), everything.clone()
    groups = zip(secrets.group_s.tolist(), (secret.candidates for secret in secrets.items), strict=True)
    for number, candidates in set(groups):
        alphabet[number, [token for ids in model.all_tokens(candidates) for token in ids]] = True
    if (think := model.think_token()) is not None:
        speaking[:, think] = False
    return dict(zip(FILTERS, (everything, speaking, alphabet), strict=True))


def completion_chances(model: AttackedModel, prompts: Prompts) -> dict[str, tuple[Floats, Floats]]:
    """For each filter, whether greedy decoding writes the truth at each place, and the chance that sampling does."""
    secrets = prompts.secrets
    truths = model.all_tokens([secret.truth for secret in secrets.items])
    sizes = [len(truths[s]) for s in prompts.secret_k]
    masks = {name: mask.to(model.device) for name, mask in allowed_tokens(model, secrets).items()}
    greedy = {name: np.ones(len(sizes)) for name in masks}
    logp = {name: np.zeros(len(sizes)) for name in masks}
    for spots, logits in next_logits(model, prompts.texts, prompts.places, sizes):
        place = np.array([k for k, _ in spots])
        secret = np.array(prompts.secret_k)[place]
        token = torch.tensor([truths[prompts.secret_k[k]][offset] for k, offset in spots], device=logits.device)
        group = torch.from_numpy(secrets.group_s[secret]).to(logits.device)
        for name, mask in masks.items():
            kept = logits.float().masked_fill(~mask[group], -torch.inf)
            np.multiply.at(greedy[name], place, (kept.argmax(-1) == token).cpu().numpy())
            likely = torch.log_softmax(kept, -1).gather(1, token[:, None])[:, 0]
            np.add.at(logp[name], place, likely.double().cpu().numpy())
    return {name: (greedy[name], np.exp(logp[name])) for name in masks}
