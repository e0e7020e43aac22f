"""The command line: ``app.py`` has all commands in one app, each file the commands of one kind."""
