"""What the user sees: the command line, text, and later reports, live view, web and export.

`cli` has one file per command; `text` turns an incident into a paragraph; `incidents_file` reads what a job left
behind; `doctor` holds the checks of the machine; `origin` and `place` help errors to say where; `leave` makes
signals ways out. Nobody inside whichrank imports from it: dependencies point inwards, and this is the outside.
Implements no paper section.
"""
