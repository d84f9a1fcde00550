"""Loops over columns in C, where NumPy would go through them many times: pure functions of arrays.

Each file has its twin in `native/src/columns`: `records`, `counts`, `periods`, `rounds` and `iterations`; `library`
loads them. What keeps something or decides is elsewhere. May be imported by the rooms that have columns, first of all
`store`.
"""
