"""Grading in a real box: what passes, what does not, and what could not be told."""

from tadpole.outcome import GradeStatus


async def test_gold_is_resolved(grader, task):
    grade = await grader.grade(task, task.gold)
    print(grade)
    assert (grade.status, grade.resolved, grade.failing) == (GradeStatus.GRADED, True, ())
