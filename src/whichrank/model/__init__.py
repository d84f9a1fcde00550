"""Values only: ops, communicators, layout, findings, incidents. Frozen, no I/O, no clock.

Every other package may import from here; nothing is imported from the others.
`incident` is what the user is reported (JSON `whichrank.incident/1`); `schema` exports its JSON Schema.
The words are those of DESIGN section 1; op and trace ID follow CCL-D section 5.1.
"""
