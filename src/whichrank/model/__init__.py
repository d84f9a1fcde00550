"""Values only: operations, communicators, findings, incidents. Frozen, no I/O, no clock.

`kinds` says what each kind of operation is, `sensors` what each sensor sees: a new one of either begins there. `rows`
and `telemetry` are what an agent reports, `picture` a moment of the job, `finding` what a question answers, `incident`
what the user is told (JSON `whichrank.incident/1`), of which `schema` exports the JSON Schema. Every other package may
import from here; nothing is imported from the others. The words are those of DESIGN section 1; operation and trace ID
follow CCL-D section 5.1.
"""
