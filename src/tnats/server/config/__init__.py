"""Configuration files and their options. Start with `load.read_options` and `options.Options`."""
