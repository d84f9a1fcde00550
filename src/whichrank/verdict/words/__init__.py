"""The words of an incident, made from its fields and nothing else.

`text` has the headline and the paragraph, `phrases` the parts of sentences, `details` the labelled lines below them,
`raised_alike` the sentence for what all ranks raised, `tense` the past, `amounts` numbers with their units. May be
imported from here by every screen.
"""
