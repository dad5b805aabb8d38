"""Fuzzing of everything that reads bytes from outside.

A target is a module in `targets/`: `seeds()` gives inputs to begin with, `WORDS` parts that such
inputs are made of, and `check(data)` raises when a promise of the reader breaks. Two engines use
it: Hypothesis (test_targets.py, in every `make test`) and atheris, which is guided by coverage
(coverage_guided.py; `make fuzz`, and some seconds in `make test` where it can be installed).

To add one: write the module; both engines find it. What a fuzzer has found becomes a file in
`tests/data/fuzz/TARGET/`, which is checked first in every run.
"""
