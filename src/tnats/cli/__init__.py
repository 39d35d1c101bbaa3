"""The `tnats` command. `app` finds the sub-commands, each a module of its own that is imported when called."""
