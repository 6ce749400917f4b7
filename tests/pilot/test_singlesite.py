import random
from collections import Counter

from tadpole.pilot.code import Code
from tadpole.pilot.dictation import dictate
from tadpole.pilot.proposers.singlesite import SingleSite, Style


def propose(snapshot, seed=0, **settings):
    return list(SingleSite(**settings).propose(snapshot, random.Random(seed)))


def test_the_same_seed_gives_the_same_candidates(snapshot):
    assert propose(snapshot) == propose(snapshot)
    assert [c.key for c in propose(snapshot)] != [c.key for c in propose(snapshot, seed=1)]


def test_candidates_spread_over_files_functions_and_operators(snapshot):
    found = propose(snapshot, per_function=3)
    assert {c.files for c in found} == {("pond/shapes.py",), ("pond/words.py",)}
    assert found[0].files != found[1].files
    functions = Counter((c.files, c.functions) for c in found)
    assert max(functions.values()) == 3
    assert len({c.operator for c in found}) > len(found) / 3
    assert len({c.key for c in found}) == len(found)


def test_only_covered_code_is_edited_and_never_a_repr(snapshot):
    for candidate in propose(snapshot, per_function=99):
        site = candidate.sites[0]
        covered = snapshot.baseline.lines(site.path)
        assert site.lines and set(site.lines) <= set(covered)
        assert candidate.functions[0].rpartition(".")[2] not in ("__repr__", "only_for_checkers")


def test_an_edit_changes_its_own_span_and_nothing_else(snapshot):
    for candidate in propose(snapshot, per_function=99):
        site, change = candidate.sites[0], candidate.changes[0]
        pristine = (snapshot.tree / site.path).read_bytes().decode()
        assert pristine[site.offset :].startswith(site.old)
        rest = pristine[site.offset + len(site.old) :]
        assert change.content.decode() == pristine[: site.offset] + site.new + rest


def test_line_style_gives_edits_that_can_be_dictated_in_few_plain_words(snapshot):
    found = propose(snapshot, style=Style.LINE, max_dictated=40, per_function=99)
    assert found
    for candidate in found:
        site = candidate.sites[0]
        dictated = dictate(Code.decode(site.path, (snapshot.tree / site.path).read_bytes()), site)
        assert dictated.plain and dictated.longest <= 40
