import pytest

from tadpole.errors import SourceError
from tadpole.repos.recipe import Origin, discover, names, origin, recipe_for, release
from tadpole.task import FileChange, Recipe


def _files(*paths: str, **texts: str):
    named = {path.replace("__", "."): text for path, text in texts.items()}
    return {path: FileChange(path, named.get(path, "").encode()) for path in [*paths, *named]}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (
            ("lib/__init__.py", "tests/test_a.py", "setup.py", "docs/conf.py"),
            Recipe((".",), ("lib",), ("tests",)),
        ),
        (
            ("src/lib/__init__.py", "src/lib/tests/test_a.py"),
            Recipe(("src",), ("lib",), ("src/lib/tests",)),
        ),
        (("lib.py", "test_lib.py", "conftest.py"), Recipe((".",), ("lib",), ("test_lib.py",))),
        (("lib.py", "tests.py"), Recipe((".",), ("lib",), ("tests.py",))),
        (
            ("lib/__init__.py", "lib/test/deep/a_test.py", "examples/__init__.py"),
            Recipe((".",), ("lib",), ("lib/test",)),
        ),
        (("lib/__init__.py", "lib/core.py"), Recipe((".",), ("lib",), ())),
    ],
)
def test_a_recipe_is_discovered(paths: tuple[str, ...], expected: Recipe) -> None:
    assert discover(_files(*paths)) == expected


def test_who_says_how_the_tests_are_run() -> None:
    plain = _files("lib/__init__.py", "tests/test_a.py")
    said = _files(*plain, pyproject__toml='[tool.tadpole]\ntest_paths = ["tests"]\n')
    assert origin("local", "/a/lib", plain) is Origin.DISCOVERED
    assert origin("pypi", "boltons", plain) is Origin.KNOWN
    assert origin("pypi", "boltons", said) is Origin.SAID
    assert origin("git", "/a/lib", plain, said) is Origin.HEAD
    assert origin("git", "/a/lib", said, said) is Origin.SAID
    assert origin("git", "/a/lib", plain, plain) is Origin.DISCOVERED


def test_the_head_of_a_clone_speaks_for_commits_that_say_nothing() -> None:
    plain = _files("lib/__init__.py", "tests/test_a.py")
    text = '[tool.tadpole]\nimport_paths = [".", "src", "tests/"]\npytest_args = ["-x"]\n'
    head = _files(pyproject__toml=f'{text}test_paths = ["moved"]\n')
    recipe = recipe_for("git", "x", plain, head)
    assert recipe.import_paths == (".", "tests/")  # there was no src yet
    assert (recipe.test_paths, recipe.pytest_args) == (("tests",), ("-x",))
    own = _files(*plain, pyproject__toml='[tool.tadpole]\nimport_paths = ["."]\n')
    assert recipe_for("git", "x", own, head).pytest_args == ()
    with pytest.raises(SourceError, match=r"^x: at the head of the clone .*import_pths"):
        recipe_for("git", "x", plain, _files(pyproject__toml="[tool.tadpole]\nimport_pths = []\n"))
    with pytest.raises(SourceError, match="import_paths names src: it has no such place"):
        recipe_for("git", "x", _files(*plain, pyproject__toml=text))
    link = _files(pyproject__toml="conf/pyproject.toml")  # what git has of a link
    assert recipe_for("git", "x", plain, link) == recipe_for("git", "x", plain)


def test_what_the_tests_need_is_read_from_the_repository() -> None:
    text = """
[project.optional-dependencies]
test = ["freezegun"]
docs = ["sphinx"]
[dependency-groups]
tests = ["hypothesis>=6", {include-group = "more"}]
more = ["mock"]
[tool.pytest.ini_options]
addopts = "-ra --cov=lib --cov-report=term"
timeout = 10
"""
    found = discover(_files("lib/__init__.py", "tests/test_a.py", pyproject__toml=text))
    wanted = {"freezegun", "hypothesis>=6", "mock", "pytest-cov", "pytest-timeout"}
    assert set(found.requirements) == wanted


def test_what_setup_cfg_says_is_read_too() -> None:
    text = "[tool:pytest]\naddopts = -n auto\ntestpaths = checks\n"
    text += "[options.extras_require]\ntest =\n  freezegun\n  # no\n"
    found = discover(
        {
            **_files("lib/__init__.py", "tests/test_a.py", "checks/test_b.py"),
            "setup.cfg": FileChange("setup.cfg", text.encode()),
        }
    )
    assert found.test_paths == ("checks",)
    assert set(found.requirements) == {"freezegun", "pytest-xdist"}


@pytest.mark.parametrize(
    ("addopts", "given"),
    [
        ("'-ra -k \"a or b\"'", ()),
        ("'-s --last-failed --new-first -k \"a or b\"'", ("-o", 'addopts=-s -k "a or b"')),
        ("['-k', 'a or b', '--lf', '--lfnf=none']", ("-o", "addopts=-k 'a or b'")),
        ("'--lf --lfnf none -q'", ("-o", "addopts=-q")),
        ("'--sw'", ("-o", "addopts=")),
    ],
)
def test_the_memory_of_earlier_runs_is_left_out(addopts: str, given: tuple[str, ...]) -> None:
    """No run here has one, and pytest does not know its options without it."""
    text = f"[tool.pytest.ini_options]\naddopts = {addopts}\n"
    files = _files("lib/__init__.py", "tests/test_a.py", pyproject__toml=text)
    assert recipe_for("git", "x", files).pytest_args == given
    said = f"{text}[tool.tadpole]\npytest_args = ['-x']\n"
    files = _files("lib/__init__.py", "tests/test_a.py", pyproject__toml=said)
    assert recipe_for("git", "x", files).pytest_args == (*given, "-x")


def test_the_repository_has_the_last_word() -> None:
    text = '[tool.tadpole]\ntest_paths = ["checks"]\nenv = { TZ = "UTC" }\n'
    found = recipe_for(
        "git", "x", _files("lib/__init__.py", "tests/test_a.py", pyproject__toml=text)
    )
    assert found.test_paths == ("checks",)
    assert found.packages == ("lib",)
    assert found.env == (("TZ", "UTC"),)


def test_a_repository_without_tests() -> None:
    with pytest.raises(SourceError, match=r"x has no tests .*test_paths") as error:
        recipe_for("git", "x", _files("lib/__init__.py"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("test_paths = 5", "test_paths is 5: make it a list of texts"),
        ("packages = ['a', 1]", "packages is .*: make it a list of texts"),
        ("pytest_args = '-q'", "pytest_args is '-q': make it a list of texts"),
        ("env = ['TZ']", "env is .*: make it a table of texts"),
        ("testpaths = ['a']", "unknown key testpaths; did you mean test_paths"),
    ],
)
def test_what_a_repository_says_must_be_known_and_of_its_kind(line: str, says: str) -> None:
    text = f"[tool.tadpole]\n{line}\n"
    with pytest.raises(SourceError, match=rf"^some/lib: its \[tool\.tadpole\] .*{says}"):
        recipe_for("git", "some/lib", _files("lib/__init__.py", pyproject__toml=text))


def test_a_broken_pyproject() -> None:
    with pytest.raises(SourceError, match=r"^x: its pyproject\.toml cannot be read"):
        recipe_for("git", "x", _files(pyproject__toml="["))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("project = 1", "project is 1, no table"),
        ("tool = []", "tool is [], no table"),
        ("[tool]\npytest = 1", "pytest is 1, no table"),
        ("[tool]\ntadpole = 'x'", "tadpole is 'x', no table"),
        ("[tool.pytest]\nini_options = []", "ini_options is [], no table"),
        ("[tool.pytest.ini_options]\ntestpaths = 5", "testpaths is 5, no list"),
        ("[tool.pytest.ini_options]\naddopts = [5]", "addopts holds 5, no text"),
        ("[project]\noptional-dependencies = 1", "optional-dependencies is 1, no table"),
        ("[project.optional-dependencies]\ntest = 'x'", "test is 'x', no list"),
        ("[project.optional-dependencies]\ntest = [1]", "test holds 1, no text"),
        ("dependency-groups = []", "dependency-groups is [], no table"),
        ("[dependency-groups]\ntest = 1", "test is 1, no list"),
        ("[dependency-groups]\ntest = [1]", "the dependency group test holds 1"),
        ("[dependency-groups]\ntest = [{include-group = []}]", "dependency group test holds"),
        (f"x = {'[' * 9000}", "nested too deeply"),
        (f"x = {'9' * 5000}", "too many digits"),
        (f"tool = 0x{'f' * 9000}", "tool is"),
    ],
)
def test_a_pyproject_of_an_odd_shape_is_one_clear_line(text: str, told: str) -> None:
    files = _files("lib/__init__.py", "tests/test_a.py", pyproject__toml=text)
    with pytest.raises(SourceError, match=r"^x: its pyproject\.toml cannot be read") as error:
        recipe_for("git", "x", files)
    assert told in str(error.value) and str(error.value).endswith("): correct it")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_every_known_library_names_a_release_and_can_be_used() -> None:
    assert len(names()) >= 16
    for name in names():
        assert release(name)
        recipe = recipe_for("pypi", name, {})
        assert recipe.packages
        assert recipe.test_paths


def test_of_several_files_with_options_the_first_that_pytest_reads_counts() -> None:
    files = {
        "pytest__ini": "[pytest]\naddopts = -q --timeout=3\n",
        "pyproject__toml": '[tool.pytest.ini_options]\naddopts = "--cov=lib"\n',
        "tox__ini": "[pytest]\naddopts = -n2\n",
        "setup__cfg": "[tool:pytest]\naddopts = --mypy\n[options.extras_require]\ntest = mock\n",
    }
    files = {"pytest__toml": '[pytest]\naddopts = ["--ruff"]\n', **files}
    wanted = ["pytest-ruff", "pytest-timeout", "pytest-cov", "pytest-xdist", "pytest-mypy"]
    for plugin in wanted:
        found = discover(_files("lib.py", "test_lib.py", **files))
        assert found.requirements == ("mock", plugin)
        if len(files) > 1:
            del files[next(iter(files))]
    empty = discover(_files("lib.py", "test_lib.py", pytest__ini="", **files))
    assert empty.requirements == ("mock",)
    empty = discover(_files("lib.py", "test_lib.py", tox__ini="[pytest]\n", **files))
    assert empty.requirements == ("mock",)
    native = _files("lib.py", "test_lib.py", pyproject__toml="[tool.pytest]\ntimeout = '3'\n")
    assert discover(native).requirements == ("pytest-timeout",)
