"""The audit: can the closed book be read back out of the model?

secret      what is looked for: pieces of the book, each with what an attacker knows and what there is to guess
arms        the models compared: trained, before, without the text, with a decoy text, with loss on the text
likelihood  log-likelihoods of all candidates, sharing the prefix
attacks     one file for each; all have one interface, (model, secrets) -> scores for every secret
statistics  rates, areas and intervals, clustered by secret
verdict     rows -> leaked, not recovered, void
run         a run's folder -> report: names every stage in order; read it first
"""
