"""What a Harbor task directory carries besides the task: its Dockerfile and its grader."""
