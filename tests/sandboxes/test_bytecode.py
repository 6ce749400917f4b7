from pathlib import Path

from tadpole.sandboxes.binaries import box_python
from tadpole.sandboxes.bytecode import compiled


def test_what_can_be_compiled_is_and_the_rest_is_left_out(tmp_path: Path):
    good, bad, none = (tmp_path / name for name in ("good.py", "bad.py", "none.py"))
    good.write_text("x = 1\n")
    bad.write_text("x = \n")
    made = compiled(box_python(), (good, bad, none))
    assert set(made) == {good} and made[good].parent == tmp_path / "__pycache__"


def test_what_is_fresh_stays_the_very_file_and_what_is_stale_is_made_again(tmp_path: Path):
    source = tmp_path / "good.py"
    source.write_text("x = 1\n")
    compiled.cache_clear()
    made = compiled(box_python(), (source,))[source]
    first = made.stat().st_ino
    compiled.cache_clear()  # as another process would meet it
    compiled(box_python(), (source,))
    assert made.stat().st_ino == first
    source.write_text("x = 22\n")
    compiled.cache_clear()
    assert compiled(box_python(), (source,))[source] == made
    assert made.stat().st_ino != first
    assert [path.name for path in made.parent.iterdir()] == [made.name]


async def test_a_box_starts_from_bytecode_of_its_own_toolbox(box, toolbox):
    for place, expected in {"": "bounded", "toolbox": "__init__"}.items():
        result = await box.exec(["/bin/ls", f"/.box/{place}/__pycache__"], timeout=20)
        assert [name.partition(".")[0] for name in result.stdout.split()] == [expected]
    assert (toolbox / "__init__.py").read_text().startswith("\nimport time")
    assert (await box.tool("Calls", {})).text == "Calls"  # the given one, not Leaf's
