"""File systems for the commit protocol: renames that never replace, explicit durability, true listings."""
