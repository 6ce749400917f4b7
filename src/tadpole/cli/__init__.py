"""The command line: one thin module per verb. stdout carries results, stderr the activity."""
