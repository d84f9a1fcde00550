"""The words of an incident, made from its fields and nothing else: all sentences for people, but those of the screens.

`clauses` has the sentence of each kind of clause, as "it has not entered ...", in both tenses; `text` the headline and
the paragraph, `phrases` their predicates by cause, `details` the labelled lines below, `raised_alike` the sentence for
what all ranks raised, `amounts` numbers with their units. May be imported from here by every screen.
"""
