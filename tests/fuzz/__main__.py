"""The long run: `python -m tests.fuzz --runs 1000000 --seed 1`, or of one target; `make fuzz` makes a million inputs.

What breaks a rule is kept in `build/fuzz` and named; the exit code says whether there was any. With `--atheris` the
inputs of one target are led by coverage, for as long as it takes.
"""

import argparse
import sys
import time

# The whole-table target opens many files an input: it gets fewer.
SHARES = {"metadata": 0.25, "manifest": 0.3, "manifest_list": 0.15, "vector": 0.2, "variant": 0.07}
SHARES["table"] = 0.03


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs, of all targets together")
    parser.add_argument("--target", choices=tuple(SHARES), help="only this one")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same seed makes the same inputs")
    parser.add_argument(
        "--atheris", action="store_true", help="led by coverage; needs the package atheris and --target"
    )
    given = parser.parse_args(arguments)
    if given.atheris:
        if not given.target:
            parser.error("--atheris needs --target")
        led_by_coverage(given.target, given.runs, given.seed)
    from tests.fuzz.runner import run_and_report

    targets = {given.target: 1.0} if given.target else SHARES
    return run_and_report({t: max(1, int(given.runs * share)) for t, share in targets.items()}, seed=given.seed)


def led_by_coverage(target: str, runs: int, seed: int) -> None:
    """Let atheris choose the inputs; it does not return."""
    import random

    import atheris

    # Only what is imported here is watched, so nothing of the package may have been imported before.
    with atheris.instrument_imports(include=["airflow_iceberg"]):
        from tests.fuzz.mutation import HERE, corpus, mutate
        from tests.fuzz.runner import FINDINGS, check
        from tests.fuzz.targets import TARGETS

    function, samples = TARGETS[target], corpus(target)

    def one_input(data: bytes) -> None:
        problem = check(function, data)
        if problem not in ("", "refused"):
            raise AssertionError(problem)

    def mutator(data: bytes, max_size: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.5:
            return atheris.Mutate(data, max_size)
        return mutate(target, data, chance, chance.choice(samples))[:max_size]

    # New inputs that reach new code go to the first folder, and must not lie among the samples.
    found = FINDINGS / target
    found.mkdir(parents=True, exist_ok=True)
    options = [f"-runs={runs}", f"-seed={seed}", "-max_len=65536", f"-artifact_prefix={FINDINGS}/{target}-"]
    folders = [str(found), str(HERE / "corpus" / target)]
    atheris.Setup([sys.argv[0], *options, *folders], one_input, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
