"""The intermediate representation: types, terms, ops and graphs. Nothing here knows an operator by name."""
