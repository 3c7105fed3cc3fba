"""Cases: a TOML file becomes objects, and these a run in a folder."""
