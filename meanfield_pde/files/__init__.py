"""Files: safe replacement, results, checkpoints, meshes, tokens, tables, series for ParaView."""
