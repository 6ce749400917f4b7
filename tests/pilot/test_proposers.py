"""What each proposer hands over, on a real library with a real history; nothing is run yet."""

import io
import random
from collections import Counter
from dataclasses import replace

import brook as library
import pytest

from tadpole.errors import SourceError
from tadpole.pilot.callgraph import call_graph
from tadpole.pilot.code import Code
from tadpole.pilot.proposers.composition import Composition
from tadpole.pilot.proposers.history import History
from tadpole.pilot.proposers.migration import Migration
from tadpole.pilot.proposers.mixed import Mixed, chosen
from tadpole.pilot.proposers.pairs import pairs, with_pairs
from tadpole.pilot.proposers.removal import BODY, GROUP, Removal
from tadpole.pilot.proposers.rename import Rename
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.sources import Sources, spliced
from tadpole.progress import Progress
from tadpole.settings import ProposerName, TasksConfig
from tadpole.task import TaskKind

ALL = [Removal(), Composition(), History(), Rename(), Migration(), chosen(TasksConfig().weights)]


def propose(proposer, snapshot, seed=0):
    return list(proposer.propose(snapshot, random.Random(seed)))


def texts(candidate):
    return {change.path: change.content.decode() for change in candidate.changes}


@pytest.mark.parametrize("proposer", ALL, ids=lambda proposer: proposer.name.partition("=")[0])
def test_every_proposer_is_seeded_and_edits_just_its_sites(brook, proposer):
    found = propose(proposer, brook)
    assert found == propose(proposer, brook)
    assert found
    assert len({candidate.changes for candidate in found}) == len(found)
    for candidate in found:
        assert any(site.lines for site in candidate.sites)
        for change in candidate.changes:
            pristine = (brook.tree / change.path).read_bytes().decode()
            sites = [site for site in candidate.sites if site.path == change.path]
            for site in sites:
                assert pristine[site.offset : site.end] == site.old
                assert set(site.lines) <= set(brook.baseline.lines(site.path))
            assert spliced(pristine, sites) == change.content.decode() != pristine


def test_another_seed_gives_another_order(brook):
    mixed = chosen(TasksConfig().weights)
    one, other = ([c.key for c in propose(mixed, brook, seed)] for seed in (0, 1))
    assert one != other


def test_the_call_graph_holds_what_tests_really_run(brook):
    graph = call_graph(Sources(brook))
    text, tally = "brook/text.py", "brook/tally.py"
    assert set(graph[text, "slug"]) == {(text, "_lowered"), (text, "_words")}
    assert graph[tally, "Tally.__init__"] == ((tally, "Tally.add_thing"),)
    assert graph[tally, "Tally.table"] == ((tally, "Tally.ranking"),)
    assert graph[text, "initials"] == ()


def test_a_removed_group_leaves_signatures_and_docstrings(brook):
    by_head = {}
    for seed in range(6):
        for candidate in propose(Removal(), brook, seed):
            assert candidate.kind is TaskKind.FEATURE
            by_head[candidate.functions[0], candidate.operator] = candidate
    group = by_head["slug", GROUP]
    assert group.functions == ("slug", "_lowered", "_words")
    text = texts(group)["brook/text.py"]
    assert "casefold" not in text and "isalnum" not in text and "Sharp s" not in text
    assert text.count("raise NotImplementedError") == 3
    assert "def initials" in text and "letters = " in text
    for shown in (text, group.request):
        assert "def slug(title, longest=40):" in shown
        assert "never a hyphen at the end" in shown
    assert "Sharp s" not in group.request
    assert by_head["slug", BODY].functions == ("slug",)
    assert ("_words", BODY) not in by_head  # nothing says what it does
    # add_thing runs in tests that never count anything up: it is nobody's helper.
    assert all("Tally.add_thing" not in names.functions[1:] for names in by_head.values())


def test_a_composition_joins_single_bugs_of_different_functions(brook):
    found = propose(Composition(triples=1.0), brook)
    assert {len(candidate.parts) for candidate in found} == {2, 3}
    for candidate in found:
        assert candidate.operator == "+".join(part.operator for part in candidate.parts)
        places = [(part.files, part.functions) for part in candidate.parts]
        assert len(set(places)) == len(places)
        assert not any(part.parts for part in candidate.parts)


def test_what_a_person_changed_is_taken_back_in_todays_tree(brook):
    found = {candidate.origin: candidate for candidate in propose(History(), brook)}
    log = library.git(brook.source.location, "log", "--format=%H %s").splitlines()
    names = {line.partition(" ")[2]: line.partition(" ")[0] for line in log}
    fix = found[names["fix(text): never end a slug with a hyphen (#12)"]]
    assert texts(fix) == {"brook/text.py": library.TEXT.replace('.rstrip("-")\n', "\n")}
    assert (fix.kind, fix.functions) == (TaskKind.BUG_FIX, ("slug",))
    assert (
        "never end a slug with a hyphen" in fix.request and "A cut could leave one" in fix.request
    )
    for secret in ("#12", "http", "1a2b3c4d5e", "test", fix.origin[:7]):
        assert secret not in fix.request
    added = found[names["Add ties in alphabetical order to the ranking"]]
    assert added.kind is TaskKind.FEATURE
    assert len(found) == 2  # the others changed no code, or were changed again


def test_pairs_are_commits_of_library_and_tests(brook, brook_clone):
    subjects = [library.git(brook_clone, "log", "-1", "--format=%s", name) for name in pairs(brook)]
    assert subjects == [
        "Add ties in alphabetical order to the ranking",
        "fix(text): never end a slug with a hyphen (#12)",
    ]


def test_the_commit_of_the_snapshot_itself_is_no_pair(brook):
    newest, *rest = pairs(brook)
    there = replace(brook, source=replace(brook.source, version=newest))
    assert list(pairs(there)) == rest


@pytest.mark.slow
async def test_a_pair_is_the_change_of_its_own_commit(brook, brook_clone, store):
    then, said = Rename(), io.StringIO()
    sources, proposer = await with_pairs([brook_clone], 9, store, then, Progress(said))
    commits = list(pairs(brook))
    assert sources == [brook_clone, *(f"{brook_clone}@{commit}" for commit in commits)]
    assert propose(proposer, brook) == propose(then, brook)
    for source, commit in zip(sources[1:], commits, strict=True):
        [candidate] = propose(proposer, await store.snapshot(source))
        assert candidate.origin == commit
        before = library.git(brook_clone, "show", f"{commit}~:{candidate.files[0]}")
        assert texts(candidate)[candidate.files[0]].strip() == before
    assert "2/2" in said.getvalue()
    none = await with_pairs([brook_clone], 0, store, then, Progress.silent())
    assert none == ([brook_clone], then)


def test_only_a_clone_has_a_history(brook, tmp_path):
    for kind, location in (("pypi", "brook"), ("git", "https://example.org/brook.git")):
        source = replace(brook.source, kind=kind, location=location)
        assert propose(History(), replace(brook, source=source)) == []
    source = replace(brook.source, location=str(tmp_path))
    with pytest.raises(SourceError, match="git cannot read"):
        propose(History(), replace(brook, source=source))


def test_a_rename_goes_back_everywhere_or_not_at_all(brook):
    found = {candidate.functions[0]: candidate for candidate in propose(Rename(), brook)}
    assert set(found) == {"Tally.add_thing", "Tally.ranking", "Tally.table", "initials"} | {
        "doubled", "all_doubled"
    } & set(found)  # fmt: skip
    add = found["Tally.add_thing"]
    text = texts(add)["brook/tally.py"]
    assert "add_thing" not in text and text.count("addThing") == 2
    assert add.kind is TaskKind.REFACTOR
    assert "`addThing`" in add.request and "`add_thing`" in add.request
    assert "slug" not in found  # too short to be sure of
    assert "Tally.total" not in found  # two things are called that


def test_a_migration_goes_back_to_an_old_python(brook):
    found = propose(Migration(), brook)
    assert {candidate.kind for candidate in found} == {TaskKind.MIGRATION}
    news = {site.new for candidate in found for site in candidate.sites}
    assert news <= {"iteritems", "itervalues", "xrange"} and len(news) >= 2
    assert all(len(candidate.sites) >= 2 for candidate in found)


def test_weights_are_shares_and_those_that_end_leave_theirs_to_others(brook):
    bugs, removal = SingleSite(), Removal()
    mixed = Mixed(((bugs, 3), (removal, 1)))
    found = propose(mixed, brook)
    assert Counter(c.proposer for c in found[:8]) == {"single-site": 6, "removal": 2}
    assert len(found) > len(propose(bugs, brook))
    assert mixed.name == "single-site=3,removal=1"
    assert chosen({ProposerName.RENAME: 1, ProposerName.HISTORY: 0}) == Rename()


def test_coroutines_are_proposed_too(brook):
    functions = {c.functions[0] for c in propose(SingleSite(per_function=9), brook)}
    assert {"doubled", "all_doubled", "total"} <= functions
    operators = {c.operator for c in propose(SingleSite(per_function=9), brook)}
    assert "drop_await" in operators


def test_overlapping_sites_are_refused(brook):
    code = Code.decode("m.py", b"a = 1\n")
    sources = Sources(brook)
    one = sources.site(code, 0, 3, "b", ())
    other = sources.site(code, 2, 5, "c", ())
    assert spliced(code.text, [one, other]) is None
    assert spliced(code.text, [one, sources.site(code, 4, 5, "2", ())]) == "b 2\n"
