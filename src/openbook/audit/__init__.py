"""The audit: can the closed book be read back out of the model?

run            from a run's folder to a report: names every stage in order; read it first
arms           the models that are compared: trained, and four controls that differ from it in one thing each
secret         what is looked for: pieces of the book, each with what an attacker knows and what there is to guess
canaries       secrets that are planted in the data before training
model          a model under attack and its tokens
prompts        the texts in which a model is asked for secrets
likelihood     log-likelihoods of all candidates, sharing the prefix
attack         what an attack is given and returns, and their registry
attacks        one file for each attack
skill          how a model is asked to do what it learned
solving        the rules of the task, from the answers to such questions
tuning         what relearning and soft prompts share
statistics     rates, areas and intervals, clustered by secret
verdict        measures -> leaked, not recovered, void
summary        a report as rows, as cells of a table and as a chart
kinds          what the audit asks about the kind of a source or of a model
"""
